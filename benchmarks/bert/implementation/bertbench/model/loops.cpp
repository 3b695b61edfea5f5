// What a CPU computes between matrix products, each in one or two passes: torch would take a pass for each operation.
//
// Numbers are fp32 or bf16 in memory and fp32 in registers. Compilers turn the inner loops into vector instructions.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using Count = std::int64_t;
using Bits = std::uint32_t;

constexpr Count FEW = 1 << 14;  // elements that take less time than waking other threads

struct Bf16 {
  std::uint16_t bits;
};

template <class To, class From>
inline To as(From value) {
  To same;
  std::memcpy(&same, &value, sizeof same);
  return same;
}

inline float load(const float& place) { return place; }
inline float load(const Bf16& place) { return as<float>(Bits(place.bits) << 16); }
inline void store(float& place, float value) { place = value; }
inline void store(Bf16& place, float value) {
  Bits bits = as<Bits>(value);
  bits += 0x7fff + (bits >> 16 & 1);  // rounds to nearest, ties to even
  place.bits = value != value ? 0x7fc0 : bits >> 16;
}

// e^x to 2 units in the last place: 2^n times a polynomial of the rest, |rest| <= ln 2 / 2 (Cephes' expf); 0 below -87.
inline float exponential(float x) {
  const float magic = 1.5f * (1 << 23);  // adding it rounds to a whole number in the lowest bits
  const float bounded = x > 88.0f ? 88.0f : x;
  const float shifted = bounded * 1.44269504f + magic;
  const float n = shifted - magic;
  const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return x < -87.0f ? 0.0f : p * as<float>((as<Bits>(shifted) << 23) + 0x3f800000u);
}

// Dropout's masks are computed, never stored: a hash of two random keys and a number decides for two elements, by its
// lower and upper 16 bits. So a rate is a multiple of 1 / 65,536.
struct Mask {
  Bits first, second;
  Bits drops;  // of 65,536

  static constexpr Count LANES = 16;  // a hash decides for elements this far apart, both in a vector of AVX-512

  static Count hashes(Count count) { return (count + 2 * LANES - 1) / (2 * LANES) * LANES; }

  // Writes 1 for each kept element and 0 for each dropped one, for 2 * hashes(count) elements; `number` is that of the
  // first hash.
  void draw(float* kept, Count count, Bits number) const {
    for (Count start = 0; start < count; start += 2 * LANES, number += LANES) {
#pragma omp simd
      for (Count i = 0; i < LANES; i++) {
        Bits hash = ((number + Bits(i)) ^ first) * 0x85ebca6bu;
        hash = ((hash ^ hash >> 13) + second) * 0xc2b2ae35u;  // MurmurHash3's finalizer, with a key at both ends
        hash = (hash ^ hash >> 16) * 0x85ebca6bu;
        hash ^= hash >> 15;
        kept[start + i] = (hash & 0xffff) >= drops ? 1.0f : 0.0f;
        kept[start + i + LANES] = hash >> 16 >= drops ? 1.0f : 0.0f;
      }
    }
  }
};

// gelu(v) = v * sigmoid(k * (v + c * v^3)), k = 2 * sqrt(2 / pi): tanh written as a sigmoid.
constexpr float K = 1.5957691216f, KC = K * 0.044715f;

template <class T>
void gelu(const T* given, T* result, Count count) {
#pragma omp parallel for simd if (count > FEW)
  for (Count i = 0; i < count; i++) {
    const float v = load(given[i]);
    store(result[i], v / (1.0f + exponential(-v * (K + KC * v * v))));
  }
}

template <class T>
void gelu_gradient(const T* gradient, const T* given, T* result, Count count) {
#pragma omp parallel for simd if (count > FEW)
  for (Count i = 0; i < count; i++) {
    const float v = load(given[i]);
    const float sigmoid = 1.0f / (1.0f + exponential(-v * (K + KC * v * v)));
    const float slope = sigmoid + v * sigmoid * (1.0f - sigmoid) * (K + 3.0f * KC * v * v);
    store(result[i], load(gradient[i]) * slope);
  }
}

// result = residual + scale * dropout(given); without a residual if that is null.
template <class T, class R>
void dropout(const T* given, const R* residual, R* result, Count count, Mask mask, float scale) {
  constexpr Count PART = 1024;
#pragma omp parallel for if (count > FEW)
  for (Count start = 0; start < count; start += PART) {
    float kept[PART];
    const Count some = count - start < PART ? count - start : PART;
    mask.draw(kept, some, start / 2);
    const T* const from = given + start;
    R* const to = result + start;
    if (residual) {
      const R* const other = residual + start;
#pragma omp simd
      for (Count i = 0; i < some; i++) store(to[i], load(other[i]) + load(from[i]) * (kept[i] * scale));
    } else {
#pragma omp simd
      for (Count i = 0; i < some; i++) store(to[i], load(from[i]) * (kept[i] * scale));
    }
  }
}

// Sequences in squares (model/sequences.py): for each its first token, its length, the width of its square, and how
// many places, tokens or filler, lie before it.
struct Layout {
  const Count* table;
  Count sequences, parts, heads, numbers, places;

  // Calls body for each head of each part of each sequence: with the flat tensor's first row, the rows to the next
  // token, the squares' first row, the length and the width.
  template <class Body>
  void each(Body body) const {
#pragma omp parallel for if (places * parts * heads * numbers > FEW)
    for (Count sequence = 0; sequence < sequences; sequence++) {
      const Count *const own = table + 4 * sequence, width = own[2];
      for (Count part = 0; part < parts; part++)
        for (Count head = 0; head < heads; head++)
          body((own[0] * parts + part) * heads + head, parts * heads,
               heads * (part * places + own[3]) + head * width, own[1], width);
    }
  }
};

// Copies rows of `numbers` numbers from tokens to squares; filler repeats the last token, or is 0.
template <class T>
void gather(const T* flat, T* rows, Layout layout, bool zero) {
  const Count numbers = layout.numbers;
  layout.each([=](Count from, Count stride, Count to, Count length, Count width) {
    for (Count place = 0; place < width; place++) {
      const T* const source = flat + (from + (place < length ? place : length - 1) * stride) * numbers;
      T* const target = rows + (to + place) * numbers;
      if (zero && place >= length) {
        std::memset(target, 0, numbers * sizeof(T));
      } else {
        std::memcpy(target, source, numbers * sizeof(T));
      }
    }
  });
}

// The reverse, without filler.
template <class T>
void scatter(const T* rows, T* flat, Layout layout) {
  const Count numbers = layout.numbers;
  layout.each([=](Count to, Count stride, Count from, Count length, Count) {
    for (Count place = 0; place < length; place++) {
      const T* const source = rows + (from + place) * numbers;
      T* const target = flat + (to + place * stride) * numbers;
      std::memcpy(target, source, numbers * sizeof(T));
    }
  });
}

// Calls body(row, its mask, room for its numbers) for each row of scores; `number` is that of the first hash.
template <class Body>
void masked_rows(Count rows, Count width, Mask mask, Bits number, Body body) {
  const Count hashes = Mask::hashes(width);
#pragma omp parallel if (rows * width > FEW)
  {
    std::vector<float> kept(2 * hashes), room(width);
#pragma omp for
    for (Count row = 0; row < rows; row++) {
      mask.draw(kept.data(), width, number + row * hashes);
      body(row, kept.data(), room.data());
    }
  }
}

// Turns each row's scores into probabilities, and writes them after dropout to `dropped`. A sequence has `height` rows
// and as many keys as tokens, `lengths`; scores beyond them become 0.
template <class T>
void softmax(T* scores, T* dropped, Count rows, Count width, const Count* lengths, Count height, Mask mask,
             Bits number) {
  masked_rows(rows, width, mask, number, [=](Count row, const float* kept, float* power) {
    T *const score = scores + row * width, *const to = dropped + row * width;
    const Count keys = lengths[row / height];
    float highest = -INFINITY;
#pragma omp simd reduction(max : highest)
    for (Count i = 0; i < width; i++) {  // whole vectors: widths are multiples of 16, or 4
      power[i] = i < keys ? load(score[i]) : -INFINITY;
      highest = power[i] > highest ? power[i] : highest;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Count i = 0; i < width; i++) {
      power[i] = exponential(power[i] - highest);
      sum += power[i];
    }
    const float share = 1.0f / sum;
#pragma omp simd
    for (Count i = 0; i < width; i++) {
      store(score[i], power[i] * share);
      store(to[i], power[i] * share * kept[i]);
    }
  });
}

// Overwrites the gradient of probabilities after dropout by that of scores; writes those probabilities to `dropped`.
template <class T>
void softmax_gradient(T* gradient, const T* probabilities, T* dropped, Count rows, Count width, Mask mask,
                      Bits number) {
  masked_rows(rows, width, mask, number, [=](Count row, const float* kept, float* slope) {
    T *const by_score = gradient + row * width, *const to = dropped + row * width;
    const T* const probability = probabilities + row * width;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Count i = 0; i < width; i++) {
      slope[i] = load(by_score[i]) * kept[i];
      sum += slope[i] * load(probability[i]);
    }
#pragma omp simd
    for (Count i = 0; i < width; i++) {
      const float one = load(probability[i]);
      store(to[i], one * kept[i]);
      store(by_score[i], one * (slope[i] - sum));
    }
  });
}

// log(sum(exp(scores))) of each row.
template <class T>
void log_sum_exp(const T* scores, float* result, Count rows, Count width) {
#pragma omp parallel for if (rows * width > FEW)
  for (Count row = 0; row < rows; row++) {
    const T* const score = scores + row * width;
    float highest = -INFINITY;
#pragma omp simd reduction(max : highest)
    for (Count i = 0; i < width; i++) highest = load(score[i]) > highest ? load(score[i]) : highest;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (Count i = 0; i < width; i++) sum += exponential(load(score[i]) - highest);
    result[row] = highest + std::log(sum);
  }
}

// weight * (softmax(scores) - 1 at the label) of each row: the gradient of its cross-entropy.
template <class T>
void cross_entropy_gradient(const T* scores, const float* log_sums, const float* weights, const Count* labels,
                            T* result, Count rows, Count width) {
#pragma omp parallel for if (rows * width > FEW)
  for (Count row = 0; row < rows; row++) {
    const T* const score = scores + row * width;
    T* const to = result + row * width;
    const float log_sum = log_sums[row], weight = weights[row];
#pragma omp simd
    for (Count i = 0; i < width; i++) store(to[i], weight * exponential(load(score[i]) - log_sum));
    const Count label = labels[row];
    store(to[label], weight * (exponential(load(score[label]) - log_sum) - 1.0f));
  }
}

}  // namespace

extern "C" {
#define OF_TYPE(name, T)                                                                                               \
  void gelu_##name(const T* given, T* result, Count count) { gelu(given, result, count); }                             \
  void gelu_gradient_##name(const T* gradient, const T* given, T* result, Count count) {                               \
    gelu_gradient(gradient, given, result, count);                                                                     \
  }                                                                                                                    \
  void softmax_##name(T* scores, T* dropped, Count rows, Count width, const Count* lengths, Count height,              \
                      Count first, Count second, Count drops, Count number) {                                          \
    softmax(scores, dropped, rows, width, lengths, height, {Bits(first), Bits(second), Bits(drops)}, Bits(number));    \
  }                                                                                                                    \
  void softmax_gradient_##name(T* gradient, const T* probabilities, T* dropped, Count rows, Count width,               \
                               Count first, Count second, Count drops, Count number) {                                 \
    softmax_gradient(gradient, probabilities, dropped, rows, width, {Bits(first), Bits(second), Bits(drops)},          \
                     Bits(number));                                                                                    \
  }                                                                                                                    \
  void gather_##name(const T* flat, T* rows, const Count* table, Count sequences, Count parts, Count heads,            \
                     Count numbers, Count places, Count zero) {                                                        \
    gather(flat, rows, {table, sequences, parts, heads, numbers, places}, zero);                                       \
  }                                                                                                                    \
  void scatter_##name(const T* rows, T* flat, const Count* table, Count sequences, Count parts, Count heads,           \
                      Count numbers, Count places) {                                                                   \
    scatter(rows, flat, {table, sequences, parts, heads, numbers, places});                                            \
  }                                                                                                                    \
  void log_sum_exp_##name(const T* scores, float* result, Count rows, Count width) {                                   \
    log_sum_exp(scores, result, rows, width);                                                                          \
  }                                                                                                                    \
  void cross_entropy_gradient_##name(const T* scores, const float* log_sums, const float* weights,                     \
                                     const Count* labels, T* result, Count rows, Count width) {                        \
    cross_entropy_gradient(scores, log_sums, weights, labels, result, rows, width);                                    \
  }
OF_TYPE(fp32, float)
OF_TYPE(bf16, Bf16)

#define TO_TYPE(name, T, R)                                                                                            \
  void dropout_to_##name(const T* given, const R* residual, R* result, Count count, Count first, Count second,         \
                      Count drops, float scale) {                                                                      \
    dropout(given, residual, result, count, {Bits(first), Bits(second), Bits(drops)}, scale);                          \
  }
TO_TYPE(fp32_fp32, float, float)
TO_TYPE(bf16_bf16, Bf16, Bf16)
TO_TYPE(fp32_bf16, Bf16, float)
TO_TYPE(bf16_fp32, float, Bf16)
}
