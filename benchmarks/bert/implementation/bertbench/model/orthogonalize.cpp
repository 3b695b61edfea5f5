// Computes Muon's orthogonalization in bf16, one matrix at a time in a core's cache. Between a library's products the
// matrix would leave the cache and return, and each product would also reorder its operands.

#include "multiply.h"

namespace {

// The coefficients of a step: X becomes (linear + cubic G + quintic G G) X, where G = X X^T.
struct Quintic {
  float linear, cubic, quintic;
};

// One matrix X [H, W] with H <= W; both are rounded up to whole tiles, and the padding is 0.
template <class Arithmetic>
struct Iteration {
  using Matrix = Numbers<Arithmetic>;
  static constexpr Count UNIT = Arithmetic::UNIT;

  Count height, width;
  Matrix x, next, gram, polynomial;
  Room zipped, sums;

  Iteration(Count rows, Count columns) : height(rounded(rows, TILE)), width(rounded(columns, TILE)) {
    x.fit(height, width), next.fit(height, width), gram.fit(height, height), polynomial.fit(height, height);
  }

  // Calls write(row, column, sums) for each vector of the product of left [H, depth] and right [depth, columns].
  template <class Write>
  void multiply(Matrix& left, Units right, Count depth, Count columns, Write write) {
    const Units block = sums.fit(TILE, spread(columns));
    for (Count first = 0; first < height; first += TILE) {
      Arithmetic::multiply(left.units().from(first), right, block, TILE, depth / UNIT, columns, false);
      for (Count row = 0; row < TILE; row++)
        for (Count i = 0; i < columns; i += LANES) write(first + row, i, vector_at(block.row(row) + i));
    }
  }

  void step(Quintic by) {
    const Units along = zipped.fit(width / UNIT, spread(height));
    transpose(x.units(), along, height, width / UNIT);
    multiply(x, along, width, height, [&](Count row, Count i, Vector sum) { store_vector(gram.row(row) + i, sum); });
    multiply(gram, zip_rows(gram, zipped, height, height), height, height, [&](Count row, Count i, Vector sum) {
      store_vector(polynomial.row(row) + i, load_vector(gram.row(row) + i) * by.cubic + sum * by.quintic);
    });
    multiply(polynomial, zip_rows(x, zipped, height, width), height, width, [&](Count row, Count i, Vector sum) {
      store_vector(next.row(row) + i, load_vector(x.row(row) + i) * by.linear + sum);
    });
    std::swap(x, next);
  }
};

// Keeps singular vectors and brings singular values close to 1; matrices and results [B, H, W].
template <class Arithmetic>
void orthogonalize(const float* given, float* result, Count count, Count height, Count width, Count steps, Quintic by,
                   float smallest) {
  const Count size = height * width;
#pragma omp parallel if (count * size > FEW)
  {
    [[maybe_unused]] const typename Arithmetic::Session session;
    Iteration<Arithmetic> iteration(height, width);
#pragma omp for
    for (Count number = 0; number < count; number++) {
      const float* const from = given + number * size;
      float* const to = result + number * size;
      const float squares = sum_over(size, [=](Count i) { return from[i] * from[i]; });
      const float factor = 1.0f / std::max(std::sqrt(squares), smallest);
      for (Count row = 0; row < height; row++)
#pragma omp simd
        for (Count i = 0; i < width; i++) store(iteration.x.row(row)[i], from[row * width + i] * factor);
      for (Count step = 0; step < steps; step++) iteration.step(by);
      for (Count row = 0; row < height; row++) copy(iteration.x.row(row), to + row * width, width);
    }
  }
}

}  // namespace

extern "C" {
void orthogonalize_fp32(const float* given, float* result, Count count, Count height, Count width, Count steps,
                        float linear, float cubic, float quintic, float smallest) {
  by_fastest(Bf16{}, [&](auto by) {
    orthogonalize<decltype(by)>(given, result, count, height, width, steps, {linear, cubic, quintic}, smallest);
  });
}
}
