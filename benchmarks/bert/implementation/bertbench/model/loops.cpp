// Computes what lies between matrix products on a CPU, each function in one or two passes over memory. torch would take
// a pass for each operation.

#include "loops.h"

#include <vector>

namespace {

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

// result = dropout(given)
template <class T>
void dropout(const T* given, T* result, Count count, Mask mask) {
  constexpr Count PART = 1024;
#pragma omp parallel for if (count > FEW)
  for (Count start = 0; start < count; start += PART) {
    float kept[PART];
    const Count some = count - start < PART ? count - start : PART;
    mask.draw(kept, some, start / 2);
#pragma omp simd
    for (Count i = 0; i < some; i++) store(result[start + i], load(given[start + i]) * (kept[i] * mask.enlarged));
  }
}

// Calls body(first row, the row after the last, number of the block) for each block of rows. Sums over rows are added
// up block by block, so that they don't depend on the number of threads.
constexpr Count BLOCK = 64;
template <class Body>
void row_blocks(Count rows, Count width, Body body) {
#pragma omp parallel for if (rows * width > FEW)
  for (Count first = 0; first < rows; first += BLOCK)
    body(first, first + BLOCK < rows ? first + BLOCK : rows, first / BLOCK);
}

// result = LayerNorm(sums), where sums = residual + dropout(given), row by row; keeps each row's mean and 1 / standard
// deviation.
template <class T, class R>
void add_norm(const R* residual, const T* given, const float* weight, const float* bias, R* sums, float* moments,
              R* result, Count rows, Count width, Mask mask, float epsilon) {
  row_blocks(rows, width, [=](Count first, Count end, Count) {
    Kept room(mask, width);
    for (Count row = first; row < end; row++) {
      const float* const kept = room.draw(Bits(row * Mask::hashes(width)));
      const T* const from = given + row * width;
      const R* const other = residual + row * width;
      R *const sum = sums + row * width, *const to = result + row * width;
#pragma omp simd
      for (Count i = 0; i < width; i++) store(sum[i], load(other[i]) + load(from[i]) * (kept[i] * mask.enlarged));
      const float mean = sum_over(width, [=](Count i) { return load(sum[i]); }) / width;
      const auto square = [=](Count i) { return (load(sum[i]) - mean) * (load(sum[i]) - mean); };
      const float share = 1.0f / std::sqrt(sum_over(width, square) / width + epsilon);
#pragma omp simd
      for (Count i = 0; i < width; i++) store(to[i], (load(sum[i]) - mean) * share * weight[i] + bias[i]);
      moments[2 * row] = mean, moments[2 * row + 1] = share;
    }
  });
}

// Writes the gradients of given, residual, weight and bias, given the gradient of the result.
template <class T, class R>
void add_norm_gradient(const R* gradient, const R* sums, const float* moments, const float* weight, T* to_given,
                       R* to_residual, float* to_weight, float* to_bias, Count rows, Count width, Mask mask) {
  std::vector<float> parts((rows + BLOCK - 1) / BLOCK * 2 * width);
  row_blocks(rows, width, [=, &parts](Count first, Count end, Count block) {
    Kept room(mask, width);
    float *const by_weight = parts.data() + 2 * block * width, *const by_bias = by_weight + width;
    for (Count row = first; row < end; row++) {
      const R *const by_result = gradient + row * width, *const sum = sums + row * width;
      R* const to = to_residual + row * width;
      const float mean = moments[2 * row], share = moments[2 * row + 1];
      const auto normalised = [=](Count i) { return (load(sum[i]) - mean) * share; };
      const auto slope = [=](Count i) { return load(by_result[i]) * weight[i]; };
      const float all = sum_over(width, slope) / width;
      const float along = sum_over(width, [=](Count i) { return slope(i) * normalised(i); }) / width;
#pragma omp simd
      for (Count i = 0; i < width; i++) {
        by_weight[i] += load(by_result[i]) * normalised(i);
        by_bias[i] += load(by_result[i]);
        store(to[i], share * (slope(i) - all - normalised(i) * along));
      }
      const float* const kept = room.draw(Bits(row * Mask::hashes(width)));
#pragma omp simd
      for (Count i = 0; i < width; i++) store(to_given[row * width + i], load(to[i]) * (kept[i] * mask.enlarged));
    }
  });
  std::memset(to_weight, 0, width * sizeof(float));
  std::memset(to_bias, 0, width * sizeof(float));
  for (std::size_t part = 0; part < parts.size(); part += 2 * width)
    for (Count i = 0; i < width; i++) {
      to_weight[i] += parts[part + i];
      to_bias[i] += parts[part + width + i];
    }
}

// Writes log(sum(exp(scores))) of each row.
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

// Writes weight * (softmax(scores) - 1 at the label) of each row: the gradient of its cross-entropy.
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
  void dropout_##name(const T* given, T* result, Count count, Count first, Count second, Count drops,                  \
                      float enlarged) {                                                                                \
    dropout(given, result, count, {first, second, drops, enlarged});                                                   \
  }                                                                                                                    \
  void gelu_##name(const T* given, T* result, Count count) { gelu(given, result, count); }                             \
  void gelu_gradient_##name(const T* gradient, const T* given, T* result, Count count) {                               \
    gelu_gradient(gradient, given, result, count);                                                                     \
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

#define OF_TYPES(of_given, T, of_residual, R)                                                                          \
  void add_norm_##of_given##_##of_residual(const R* residual, const T* given, const float* weight, const float* bias,  \
                                           R* sums, float* moments, R* result, Count rows, Count width, Count first,   \
                                           Count second, Count drops, float enlarged, float epsilon) {                 \
    add_norm(residual, given, weight, bias, sums, moments, result, rows, width, {first, second, drops, enlarged},      \
             epsilon);                                                                                                 \
  }                                                                                                                    \
  void add_norm_gradient_##of_given##_##of_residual(const R* gradient, const R* sums, const float* moments,            \
                                                    const float* weight, T* to_given, R* to_residual,                  \
                                                    float* to_weight, float* to_bias, Count rows, Count width,         \
                                                    Count first, Count second, Count drops, float enlarged) {          \
    add_norm_gradient(gradient, sums, moments, weight, to_given, to_residual, to_weight, to_bias, rows, width,         \
                      {first, second, drops, enlarged});                                                               \
  }
OF_TYPES(fp32, float, fp32, float)
OF_TYPES(bf16, Bf16, fp32, float)
OF_TYPES(bf16, Bf16, bf16, Bf16)
OF_TYPES(fp32, float, bf16, Bf16)
}
