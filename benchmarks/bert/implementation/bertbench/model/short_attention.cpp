// Softmax attention of short sequences, each head of each in one go: all that it needs stays in a core's cache, where
// matrix products of a library would each wait for their call and for memory.
//
// Shapes: L tokens of a sequence, its rows rounded up to whole blocks; W = L and K = a head's width, both rounded up to
// whole vectors. What is added is 0.

#include "loops.h"

#ifndef __has_builtin  // older compilers
#define __has_builtin(name) 0
#endif

namespace {

constexpr Count ROWS = 4;  // of a block of a product

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline Vector& vector_at(float* place) { return *reinterpret_cast<Vector*>(place); }
inline const Vector& vector_at(const float* place) { return *reinterpret_cast<const Vector*>(place); }

// A matrix to read by rows and columns that lie any distance apart.
struct Matrix {
  const float* first;
  Count to_row, to_column;
};

// result[row, ...] = sum over depth of left[row, depth] * right[depth, ...], of ROWS rows and VECTORS vectors.
template <Count VECTORS>
inline void block(Matrix left, const float* right, float* result, Count depth, Count width) {
  Vector sums[ROWS][VECTORS] = {};
  for (Count at = 0; at < depth; at++)
    for (Count column = 0; column < VECTORS; column++) {
      const Vector other = vector_at(right + at * width + column * LANES);
      for (Count row = 0; row < ROWS; row++)
        sums[row][column] += left.first[row * left.to_row + at * left.to_column] * other;
    }
  for (Count row = 0; row < ROWS; row++)
    for (Count column = 0; column < VECTORS; column++)
      vector_at(result + row * width + column * LANES) = sums[row][column];
}

// result [rows, width] = left [rows, depth] @ right [depth, width]
inline void multiply(Matrix left, const float* right, float* result, Count rows, Count depth, Count width) {
  for (Count row = 0; row < rows; row += ROWS, left.first += ROWS * left.to_row) {
    Count column = 0;
    const auto take = [&](auto go, Count vectors) {
      for (; column + vectors * LANES <= width; column += vectors * LANES)
        go(left, right + column, result + row * width + column, depth, width);
    };
    take(block<4>, 4);
    take(block<2>, 2);
    take(block<1>, 1);
  }
}

// to [LANES, LANES] = from, transposed: each of four rounds zips rows with those half of all further down.
inline void transpose(const float* from, Count from_row, float* to, Count to_row) {
#if __has_builtin(__builtin_shufflevector)
  Vector rows[LANES], zipped[LANES];
  for (Count row = 0; row < LANES; row++) rows[row] = vector_at(from + row * from_row);
  for (Count round = 0; round < 4; round++) {
    for (Count row = 0; row < LANES / 2; row++) {
      const Vector a = rows[row], b = rows[row + LANES / 2];
      zipped[2 * row] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      zipped[2 * row + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (Count row = 0; row < LANES; row++) rows[row] = zipped[row];
  }
  for (Count row = 0; row < LANES; row++) vector_at(to + row * to_row) = rows[row];
#else
  for (Count row = 0; row < LANES; row++)
    for (Count column = 0; column < LANES; column++) to[column * to_row + row] = from[row * from_row + column];
#endif
}

// Sequences in a flat tensor: for each its first token, its length, and how many of a head's probabilities come
// before.
struct Layout {
  const Count* table;
  Count sequences, heads, numbers;  // of a head
  float scale;                      // of scores
  Mask mask;

  Count part() const { return heads * numbers; }
};

// A core's room for one head of one sequence, in fp32.
struct Head {
  Count numbers, length = 0, width, wide, tall;
  std::vector<float> query, key, value, gradient, transposed, dropped, by_scores, result, row;
  Kept kept;

  explicit Head(const Layout& layout) : numbers(layout.numbers), kept(layout.mask, 0) {}

  void fit(Count tokens) {
    if (tokens == length) return;  // what is added is still 0
    length = tokens;
    width = rounded(length, LANES), wide = rounded(numbers, LANES), tall = rounded(length, ROWS);
    for (auto* rows : {&query, &key, &value, &gradient, &result}) rows->assign(width * wide, 0.0f);
    for (auto* rows : {&dropped, &by_scores}) rows->assign(tall * width, 0.0f);
    transposed.resize(wide * width), row.resize(width);
    kept = Kept(kept.mask, width);
  }

  template <class T>
  void read(std::vector<float>& rows, const T* flat, Count stride, float factor = 1.0f) const {
    for (Count token = 0; token < length; token++)
      for (Count i = 0; i < numbers; i++) rows[token * wide + i] = load(flat[token * stride + i]) * factor;
  }

  // Reads query, times the scale of scores, key and value, which lie `part` numbers apart.
  template <class T>
  void read_qkv(const T* flat, Count part, float scale) {
    read(query, flat, 3 * part, scale);
    read(key, flat + part, 3 * part);
    read(value, flat + 2 * part, 3 * part);
  }

  // flat [L, K] = factor * left [L, L] @ right [L, K]
  template <class T>
  void multiply_to(T* flat, Count stride, float factor, Matrix left, const std::vector<float>& right) {
    multiply(left, right.data(), result.data(), tall, length, wide);
    for (Count token = 0; token < length; token++)
      for (Count i = 0; i < numbers; i++) store(flat[token * stride + i], result[token * wide + i] * factor);
  }

  // into [L, W] = left [L, K] @ right [L, K], transposed
  void multiply_transposed(const std::vector<float>& left, const std::vector<float>& right, float* into) {
    for (Count token = 0; token < width; token += LANES)
      for (Count i = 0; i < wide; i += LANES)
        transpose(right.data() + token * wide + i, wide, transposed.data() + i * width + token, width);
    multiply({left.data(), wide, 1}, transposed.data(), into, tall, wide, width);
  }
};

// Calls body(room, number of the first token, that of the head's first number, where probabilities begin) for each head
// of each sequence. A row's place in them numbers its hashes, of which it has no more than probabilities.
template <class Body>
void each_head(const Layout& layout, Body body) {
#pragma omp parallel if (layout.sequences * layout.heads > 16)  // fewer take less time than waking other threads
  {
    Head head(layout);
#pragma omp for collapse(2)
    for (Count sequence = 0; sequence < layout.sequences; sequence++)
      for (Count number = 0; number < layout.heads; number++) {
        const Count* const own = layout.table + 3 * sequence;
        head.fit(own[1]);
        body(head, own[0], number * layout.numbers, own[2] * layout.heads + number * head.tall * head.width);
      }
  }
}

// context [T, H, K] of query, key and value [T, 3, H, K]; keeps probabilities
template <class T>
void forward(const T* qkv, T* context, float* probabilities, Layout layout) {
  const Count part = layout.part();
  each_head(layout, [=](Head& head, Count token, Count number, Count place) {
    head.read_qkv(qkv + 3 * part * token + number, part, layout.scale);
    float* const scores = probabilities + place;
    head.multiply_transposed(head.query, head.key, scores);
    for (Count row = 0; row < head.length; row++) {
      const Count at = row * head.width;
      const float* const kept = head.kept.draw(Bits(place + at));
      softmax_row(scores + at, &head.dropped[at], head.width, head.length, kept, head.row.data());
    }
    head.multiply_to(context + part * token + number, part, layout.mask.enlarged, {head.dropped.data(), head.width, 1},
                     head.value);
  });
}

// gradient of query, key and value from that of context
template <class T>
void backward(const T* gradient, const T* qkv, const float* probabilities, T* by_qkv, Layout layout) {
  const Count part = layout.part();
  each_head(layout, [=](Head& head, Count token, Count number, Count place) {
    T* const to = by_qkv + 3 * part * token + number;
    head.read_qkv(qkv + 3 * part * token + number, part, layout.scale);
    head.read(head.gradient, gradient + part * token + number, part, layout.mask.enlarged);
    head.multiply_transposed(head.gradient, head.value, head.by_scores.data());
    for (Count row = 0; row < head.length; row++) {
      const Count at = row * head.width;
      const float* const kept = head.kept.draw(Bits(place + at));
      softmax_gradient_row(&head.by_scores[at], probabilities + place + at, &head.dropped[at], head.width, kept,
                           head.row.data());
    }
    head.multiply_to(to, 3 * part, layout.scale, {head.by_scores.data(), head.width, 1}, head.key);
    head.multiply_to(to + part, 3 * part, 1.0f, {head.by_scores.data(), 1, head.width}, head.query);
    head.multiply_to(to + 2 * part, 3 * part, 1.0f, {head.dropped.data(), 1, head.width}, head.gradient);
  });
}

}  // namespace

extern "C" {
#define OF_TYPE(name, T)                                                                                               \
  void short_attention_##name(const T* qkv, T* context, float* probabilities, const Count* table, Count sequences,     \
                              Count heads, Count numbers, float scale, Count first, Count second, Count drops,         \
                              float enlarged) {                                                                        \
    forward(qkv, context, probabilities, {table, sequences, heads, numbers, scale, {first, second, drops, enlarged}}); \
  }                                                                                                                    \
  void short_attention_gradient_##name(const T* gradient, const T* qkv, const float* probabilities, T* by_qkv,         \
                                       const Count* table, Count sequences, Count heads, Count numbers, float scale,   \
                                       Count first, Count second, Count drops, float enlarged) {                       \
    backward(gradient, qkv, probabilities, by_qkv,                                                                     \
             {table, sequences, heads, numbers, scale, {first, second, drops, enlarged}});                             \
  }
OF_TYPE(fp32, float)
OF_TYPE(bf16, Bf16)
}
