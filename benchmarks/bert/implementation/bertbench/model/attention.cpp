// Computes softmax attention within each sequence of a flat batch. Each head is computed in blocks of rows whose scores
// stay in a core's cache. A library's matrix products would each pay for their call and for memory.
//
// Shapes: L tokens of a sequence; W is L, and K is a head's width, both rounded up to whole tiles and filled with 0; R
// rows of a block. Products read their operands by rows, transposed, or zipped: a unit of a zipped operand holds
// numbers of two rows. An fp32 number is a unit by itself.

#include <algorithm>

#include "multiply.h"

namespace {

constexpr Count BLOCK = 64;  // rows: 128 kB of scores at 512 tokens

// The sequences of a flat tensor. The table holds each one's first token, its length, and the number of a head's
// probabilities in the sequences before it.
struct Layout {
  const Count* table;
  Count sequences, heads, numbers;  // of a head
  float scale;                      // of scores
  Mask mask;

  Count part() const { return heads * numbers; }
  Count scores() const {
    const Count* const last = table + 3 * (sequences - 1);
    return heads * (last[1] * last[1] + last[2]);
  }
};

// A core's buffers for one head of one sequence.
template <class Arithmetic>
struct Head {
  using Matrix = Numbers<Arithmetic>;
  static constexpr Count UNIT = Arithmetic::UNIT;

  Count numbers, wide, length = 0, width = 0, across;
  Matrix query, key, value, gradient;  // [W, K]
  Matrix dropped, by_scores;           // [R, W]
  Room zipped, zipped_dropped, zipped_by_scores, of_query, of_key, of_value, of_gradient;
  Room scores, sums, to_key, to_value;
  std::vector<float> row, bias;  // bias of a key: -infinity where there is none
  Kept kept;

  explicit Head(const Layout& layout) : numbers(layout.numbers), wide(rounded(numbers, TILE)), kept(layout.mask, 0) {}

  void fit(Count tokens) {
    if (tokens == length) return;  // the padding is still 0
    length = tokens;
    if (width != rounded(length, TILE)) {
      width = rounded(length, TILE), across = spread(width);
      for (auto* rows : {&query, &key, &value, &gradient}) rows->fit(width, wide);
      for (auto* rows : {&dropped, &by_scores}) rows->fit(BLOCK, across);
      row.resize(width), kept = Kept(kept.mask, width);
    }
    for (auto* rows : {&query, &key, &value, &gradient}) rows->clear_from(length);
    bias.assign(width, 0.0f), std::fill(bias.begin() + length, bias.end(), -INFINITY);
  }

  template <class T>
  void read(Matrix& rows, const T* flat, Count stride) const {
    for (Count token = 0; token < length; token++) copy(flat + token * stride, rows.row(token), numbers);
  }

  // Query, key and value lie `part` numbers apart.
  template <class T>
  void read_qkv(const T* flat, Count part) {
    read(query, flat, 3 * part);
    read(key, flat + part, 3 * part);
    read(value, flat + 2 * part, 3 * part);
  }

  // Returns [K, W] of tokens [W, K]; a unit holds two features: the right matrix of a product along features
  Units along_features(Matrix& rows, Room& room) {
    const Units result = room.fit(wide / UNIT, across);
    transpose(rows.units(), result, width, wide / UNIT);
    return result;
  }

  // Returns [K, W] of tokens [W, K]; a unit holds two tokens: the left matrix of a product along tokens
  Units by_feature(Matrix& rows, Room& room) {
    const Units from = zip_rows(rows, zipped, width, wide), result = room.fit(wide, spread(width / UNIT));
    transpose(from, result, width / UNIT, wide);
    return result;
  }

  // flat = factor * rows
  template <class T>
  void write(T* flat, Count stride, Units rows, Count tokens, float factor) const {
    for (Count token = 0; token < tokens; token++) {
      T* const to = flat + token * stride;
      const Unit* const from = rows.row(token);
#pragma omp simd
      for (Count i = 0; i < numbers; i++) store(to[i], from[i] * factor);
    }
  }

  // flat [L, K] = factor * columns [K, W], transposed
  template <class T>
  void write_transposed(T* flat, Count stride, Units columns, float factor) {
    const Units rows = zipped.fit(width, wide);
    transpose(columns, rows, wide, width);
    write(flat, stride, rows, length, factor);
  }

  // Calls body(first row, rows of the block, rows rounded up to what products need) for each block.
  template <class Body>
  void each_block(Body body) const {
    for (Count first = 0; first < length; first += BLOCK) {
      const Count rows = length - first < BLOCK ? length - first : BLOCK;
      body(first, rows, rounded(rows, Arithmetic::HEIGHT));
    }
  }
};

// Calls body(buffers, the first token, the head's first feature, the head's first probability) for each head of each
// sequence. Dropout's hashes are numbered by a row's place among the probabilities: a row needs no more hashes than it
// has probabilities.
template <class Arithmetic, class Body>
void each_head(const Layout& layout, Body body) {
#pragma omp parallel if (layout.scores() > FEW)
  {
    [[maybe_unused]] const typename Arithmetic::Session session;
    Head<Arithmetic> head(layout);
#pragma omp for collapse(2) schedule(dynamic)
    for (Count sequence = 0; sequence < layout.sequences; sequence++)
      for (Count number = 0; number < layout.heads; number++) {
        const Count* const own = layout.table + 3 * sequence;
        head.fit(own[1]);
        body(head, own[0], number * layout.numbers, own[2] * layout.heads + number * head.length * head.width);
      }
  }
}

// Turns a row's scores into probabilities, 0 where `bias` is -infinity, and writes them a second time after dropout,
// without dropout's factor. `power` is a buffer for the row, which stays in a smaller cache than the scores.
template <class T, class Number>
inline void softmax(const Unit* scores, T* probabilities, Number* dropped, Count width, const float* bias, float scale,
                    const float* kept, Unit* power) {
  Vector highest = Vector{} - INFINITY, sum{};
  for (Count i = 0; i < width; i += LANES) {
    vector_at(power + i) = load_vector(scores + i) * scale + load_vector(bias + i);
    highest = higher(highest, vector_at(power + i));
  }
  const float most = over_lanes(highest, higher);
  for (Count i = 0; i < width; i += LANES)
    sum += vector_at(power + i) = exponential<Vector>(vector_at(power + i) - most);
  const float share = 1.0f / over_lanes(sum, added);
  for (Count i = 0; i < width; i += LANES) {
    const Vector probability = vector_at(power + i) * share;
    store_vector(probabilities + i, probability);
    store_vector(dropped + i, probability * load_vector(kept + i));
  }
}

// Writes the gradient of a row's scores, and its probabilities after dropout, given the gradient of the latter. `slope`
// is a buffer for the row.
template <class T, class Number>
inline void softmax_gradient(const Unit* by_dropped, const T* probabilities, Number* by_scores, Number* dropped,
                             Count width, float enlarged, const float* kept, Unit* slope) {
  Vector sum{};
  for (Count i = 0; i < width; i += LANES) {
    vector_at(slope + i) = load_vector(by_dropped + i) * (load_vector(kept + i) * enlarged);
    sum += vector_at(slope + i) * load_vector(probabilities + i);
  }
  const float along = over_lanes(sum, added);
  for (Count i = 0; i < width; i += LANES) {
    const Vector probability = load_vector(probabilities + i);
    store_vector(dropped + i, probability * load_vector(kept + i));
    store_vector(by_scores + i, probability * (vector_at(slope + i) - along));
  }
}

// Writes context [T, H, K], given query, key and value [T, 3, H, K]; keeps probabilities for the backward pass.
template <class Arithmetic, class T>
void forward(const T* qkv, T* context, T* probabilities, const Layout& layout) {
  const Count part = layout.part();
  each_head<Arithmetic>(layout, [=](Head<Arithmetic>& head, Count token, Count number, Count place) {
    head.read_qkv(qkv + 3 * part * token + number, part);
    const Units key = head.along_features(head.key, head.of_key);
    const Units value = zip_rows(head.value, head.of_value, head.width, head.wide);
    const Units scores = head.scores.fit(BLOCK, head.across), sums = head.sums.fit(BLOCK, head.wide);
    head.each_block([&](Count first, Count rows, Count height) {
      const Units query = head.query.units().from(first);
      Arithmetic::multiply(query, key, scores, height, head.wide / head.UNIT, head.width, false);
      for (Count row = 0; row < rows; row++) {
        const Count at = place + (first + row) * head.width;
        softmax(scores.row(row), probabilities + at, head.dropped.row(row), head.width, head.bias.data(), layout.scale,
                head.kept.draw(Bits(at)), head.row.data());
      }
      Arithmetic::multiply(head.dropped.units(), value, sums, height, head.width / head.UNIT, head.wide, false);
      head.write(context + part * (token + first) + number, part, sums, rows, layout.mask.enlarged);
    });
  });
}

// Writes the gradient of query, key and value, given the gradient of context.
template <class Arithmetic, class T>
void backward(const T* gradient, const T* qkv, const T* probabilities, T* by_qkv, const Layout& layout) {
  const Count part = layout.part();
  each_head<Arithmetic>(layout, [=](Head<Arithmetic>& head, Count token, Count number, Count place) {
    T* const to = by_qkv + 3 * part * token + number;
    head.read_qkv(qkv + 3 * part * token + number, part);
    head.read(head.gradient, gradient + part * token + number, part);
    const Units query = head.by_feature(head.query, head.of_query);
    const Units by_context = head.by_feature(head.gradient, head.of_gradient);
    const Units key = zip_rows(head.key, head.of_key, head.width, head.wide);
    const Units value = head.along_features(head.value, head.of_value);
    const Units scores = head.scores.fit(BLOCK, head.across), sums = head.sums.fit(BLOCK, head.wide);
    const Units to_key = head.to_key.fit(head.wide, head.across), to_value = head.to_value.fit(head.wide, head.across);
    head.each_block([&](Count first, Count rows, Count height) {
      const Units above = head.gradient.units().from(first);
      Arithmetic::multiply(above, value, scores, height, head.wide / head.UNIT, head.width, false);
      for (Count row = 0; row < rows; row++) {
        const Count at = place + (first + row) * head.width;
        softmax_gradient(scores.row(row), probabilities + at, head.by_scores.row(row), head.dropped.row(row),
                         head.width, layout.mask.enlarged, head.kept.draw(Bits(at)), head.row.data());
      }
      Arithmetic::multiply(head.by_scores.units(), key, sums, height, head.width / head.UNIT, head.wide, false);
      head.write(to + 3 * part * first, 3 * part, sums, rows, layout.scale);
      const Units by_scores = zip_rows(head.by_scores, head.zipped_by_scores, height, head.width);
      const Units dropped = zip_rows(head.dropped, head.zipped_dropped, height, head.width);
      const Count depth = height / head.UNIT, done = first / head.UNIT;
      Arithmetic::multiply(query.from(0, done), by_scores, to_key, head.wide, depth, head.width, first > 0);
      Arithmetic::multiply(by_context.from(0, done), dropped, to_value, head.wide, depth, head.width, first > 0);
    });
    head.write_transposed(to + part, 3 * part, to_key, layout.scale);
    head.write_transposed(to + 2 * part, 3 * part, to_value, layout.mask.enlarged);
  });
}

}  // namespace

extern "C" {
#define OF_TYPE(name, T)                                                                                               \
  void attention_##name(const T* qkv, T* context, T* probabilities, const Count* table, Count sequences, Count heads,  \
                        Count numbers, float scale, Count first, Count second, Count drops, float enlarged) {          \
    const Layout layout{table, sequences, heads, numbers, scale, {first, second, drops, enlarged}};                    \
    by_fastest(T{}, [&](auto by) { forward<decltype(by)>(qkv, context, probabilities, layout); });                     \
  }                                                                                                                    \
  void attention_gradient_##name(const T* gradient, const T* qkv, const T* probabilities, T* by_qkv,                   \
                                 const Count* table, Count sequences, Count heads, Count numbers, float scale,         \
                                 Count first, Count second, Count drops, float enlarged) {                             \
    const Layout layout{table, sequences, heads, numbers, scale, {first, second, drops, enlarged}};                    \
    by_fastest(T{}, [&](auto by) { backward<decltype(by)>(gradient, qkv, probabilities, by_qkv, layout); });           \
  }
OF_TYPE(fp32, float)
OF_TYPE(bf16, Bf16)
}
