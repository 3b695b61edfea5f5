// Multiplies matrices that lie in a core's cache: by vectors or, in bf16 on an Intel with AMX, by tiles. Also defines
// the buffers for the operands.
//
// A unit is 32 bits along the depth of a product: one fp32 number, or two bf16 numbers, which one instruction
// multiplies and adds up in fp32. A row of a left matrix is a row of units. A row of a right matrix holds one unit of
// each column.

#pragma once

#include <algorithm>
#include <new>
#include <type_traits>

#include "loops.h"

#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define ALONE __attribute__((noinline))  // inlining it at each call would lengthen compilation by half

namespace {

typedef float Unit __attribute__((may_alias));

// A matrix of units; its rows are `stride` units apart.
struct Units {
  Unit* first;
  Count stride;

  Unit* row(Count number) const { return first + number * stride; }
  Units from(Count number, Count column = 0) const { return {row(number) + column, stride}; }
};

// The sums of a block take half of the registers, of which AVX-512 and ARM have 32.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr Count ROWS = 8;
#else
constexpr Count ROWS = 4;
#endif
constexpr Count VECTORS = 2;

// Writes to ROWS rows of VECTORS vectors, or adds to them, the sum over depth of left [row, depth] * right [depth,
// ...].
template <class Arithmetic>
inline void multiply_block(Units left, Units right, Units result, Count depth, bool adds) {
  Vector sums[ROWS][VECTORS] = {};
  if (adds)
    for (Count row = 0; row < ROWS; row++)
      for (Count column = 0; column < VECTORS; column++)
        sums[row][column] = vector_at(result.row(row) + column * LANES);
  for (Count at = 0; at < depth; at++) {
    Vector other[VECTORS];
    for (Count column = 0; column < VECTORS; column++) other[column] = vector_at(right.row(at) + column * LANES);
    for (Count row = 0; row < ROWS; row++)
      for (Count column = 0; column < VECTORS; column++)
        sums[row][column] = Arithmetic::add(sums[row][column], left.row(row)[at], other[column]);
  }
  for (Count row = 0; row < ROWS; row++)
    for (Count column = 0; column < VECTORS; column++) vector_at(result.row(row) + column * LANES) = sums[row][column];
}

// The number of columns is a multiple of this, as in sequences.py; for tiles, so is the number of values along depth.
constexpr Count TILE = 32;

// The ways to multiply. Each has its number format `Number`; `UNIT`, how many numbers make a unit; `HEIGHT`, of which
// the number of rows is a multiple; `Session`, within which it multiplies; and `multiply`, which writes left [rows,
// depth] @ right [depth, columns] to the result or, with `adds`, adds it.

template <class Arithmetic>
struct ByVectors {
  static constexpr Count HEIGHT = ROWS;
  struct Session {};

  ALONE static void multiply(Units left, Units right, Units result, Count rows, Count depth, Count columns, bool adds) {
    for (Count row = 0; row < rows; row += ROWS)
      for (Count column = 0; column < columns; column += VECTORS * LANES)
        multiply_block<Arithmetic>(left.from(row), right.from(0, column), result.from(row, column), depth, adds);
  }
};

struct Single : ByVectors<Single> {
  using Number = float;
  static constexpr Count UNIT = 1;
  static Vector add(Vector sum, float left, Vector right) { return sum + left * right; }
};

#ifdef __AVX512BF16__
struct Pairs : ByVectors<Pairs> {
  using Number = Bf16;
  static constexpr Count UNIT = 2;
  static Vector add(Vector sum, float left, Vector right) {
    return as<Vector>(
        _mm512_dpbf16_ps(as<__m512>(sum), as<__m512bh>(_mm512_set1_epi32(as<int>(left))), as<__m512bh>(right)));
  }
};
#endif

#ifdef __AMX_BF16__
// Configures eight tiles of 16 rows of 64 bytes. It is a constant, because a compiler drops a function's writes to
// memory that nothing visibly reads, and it doesn't see that the instruction reads this.
struct TileConfiguration {
  alignas(64) std::uint8_t palette = 1;
  std::uint8_t unused[15] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
const TileConfiguration TILES;

struct Tiles {
  using Number = Bf16;
  static constexpr Count UNIT = 2, HEIGHT = TILE;

  // Linux saves tiles only for processes that asked for them.
  static bool are_allowed() {
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18;
    static const bool allowed = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
    return allowed;
  }

  // Configures the tiles and, at its end, restores the previous configuration, which oneDNN expects to find unchanged.
  struct Session {
    alignas(64) char before[64];

    Session() {
      _tile_storeconfig(before);
      _tile_loadconfig(&TILES);
    }
    ~Session() { _tile_loadconfig(before); }
  };

  // Four tiles of results at a time.
  ALONE static void multiply(Units left, Units right, Units result, Count rows, Count depth, Count columns, bool adds) {
    const auto bytes = [](Units matrix) { return matrix.stride * Count(sizeof(float)); };
    for (Count row = 0; row < rows; row += TILE)
      for (Count column = 0; column < columns; column += TILE) {
        Unit *const upper = result.row(row) + column, *const lower = result.row(row + 16) + column;
        if (adds) {
          _tile_loadd(0, upper, bytes(result));
          _tile_loadd(1, upper + 16, bytes(result));
          _tile_loadd(2, lower, bytes(result));
          _tile_loadd(3, lower + 16, bytes(result));
        } else {
          _tile_zero(0);
          _tile_zero(1);
          _tile_zero(2);
          _tile_zero(3);
        }
        for (Count at = 0; at < depth; at += 16) {
          _tile_loadd(4, left.row(row) + at, bytes(left));
          _tile_loadd(5, left.row(row + 16) + at, bytes(left));
          _tile_loadd(6, right.row(at) + column, bytes(right));
          _tile_loadd(7, right.row(at) + column + 16, bytes(right));
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(1, 4, 7);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, upper, bytes(result));
        _tile_stored(1, upper + 16, bytes(result));
        _tile_stored(2, lower, bytes(result));
        _tile_stored(3, lower + 16, bytes(result));
      }
  }
};
#endif

// Writes the transposed `from` to `to` [16, 16]: each of four rounds zips each row of the upper half with one of the
// lower.
inline void transpose_block(Units from, Units to) {
#ifdef SHUFFLES_16
  Vector rows[LANES], zipped[LANES];
  for (Count row = 0; row < LANES; row++) rows[row] = vector_at(from.row(row));
  for (Count round = 0; round < 4; round++) {
    for (Count row = 0; row < LANES / 2; row++) {
      const Vector a = rows[row], b = rows[row + LANES / 2];
      zipped[2 * row] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      zipped[2 * row + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (Count row = 0; row < LANES; row++) rows[row] = zipped[row];
  }
  for (Count row = 0; row < LANES; row++) vector_at(to.row(row)) = rows[row];
#else
  for (Count row = 0; row < 16; row++)
    for (Count column = 0; column < 16; column++) to.row(column)[row] = from.row(row)[column];
#endif
}

// Writes the transposed `given` [rows, columns] to `to` [columns, rows]; both sizes are multiples of 16.
ALONE inline void transpose(Units given, Units to, Count rows, Count columns) {
  for (Count row = 0; row < rows; row += 16)
    for (Count column = 0; column < columns; column += 16)
      transpose_block(given.from(row, column), to.from(column, row));
}

// Writes units of two neighbouring rows of bf16 numbers to `to` [rows / 2, columns]; the rows are `stride` numbers
// apart.
inline void zip(const Bf16* from, Count stride, Units to, Count rows, Count columns) {
  for (Count row = 0; row < rows; row += 2, from += 2 * stride) {
    Unit* const pair = to.row(row / 2);
#pragma omp simd
    for (Count i = 0; i < columns; i++) pair[i] = as<float>(Bits(from[i].bits) | Bits(from[stride + i].bits) << 16);
  }
}

// Returns a row stride of an odd number of cache lines; with an even number, columns would share few cache sets.
inline Count spread(Count columns) { return columns / 16 % 2 ? columns : columns + 16; }

template <class From, class To>
inline void copy(const From* from, To* to, Count count) {
  if constexpr (std::is_same_v<From, To>) {
    // by vectors, because a call of memcpy takes as long as half of a short row
    typedef char Line __attribute__((vector_size(4 * LANES), aligned(2), may_alias));
    constexpr Count STEP = sizeof(Line) / sizeof(To);
    Count i = 0;
    for (; i + STEP <= count; i += STEP) *reinterpret_cast<Line*>(to + i) = *reinterpret_cast<const Line*>(from + i);
    for (; i < count; i++) to[i] = from[i];
  } else {
#pragma omp simd
    for (Count i = 0; i < count; i++) to[i] = load(from[i]);
  }
}

// Memory that begins at a cache line.
template <class T>
struct Lines {
  using value_type = T;
  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* place, std::size_t) { ::operator delete(place, std::align_val_t(64)); }
  bool operator==(const Lines&) const { return true; }
  bool operator!=(const Lines&) const { return false; }
};

// A matrix of numbers.
template <class Arithmetic>
struct Numbers {
  using Number = typename Arithmetic::Number;

  std::vector<Number, Lines<Number>> numbers;
  Count stride;

  void fit(Count rows, Count columns) { numbers.assign(rows * columns, Number{}), stride = columns; }
  void clear_from(Count first) { std::fill(row(first), numbers.data() + numbers.size(), Number{}); }
  Number* row(Count number) { return numbers.data() + number * stride; }
  Units units() { return {reinterpret_cast<Unit*>(numbers.data()), stride / Arithmetic::UNIT}; }
};

// A buffer for a matrix of units.
struct Room {
  std::vector<float, Lines<float>> units;

  Units fit(Count rows, Count columns) {
    units.resize(rows * columns);
    return {units.data(), columns};
  }
};

// Returns [rows / UNIT, columns] units of numbers [rows, columns].
template <class Arithmetic>
inline Units zip_rows(Numbers<Arithmetic>& rows, Room& room, Count height, Count columns) {
  if constexpr (Arithmetic::UNIT == 1) {
    return rows.units();
  } else {
    const Units result = room.fit(height / Arithmetic::UNIT, rows.stride);
    zip(rows.numbers.data(), rows.stride, result, height, columns);
    return result;
  }
}

// Calls body with the fastest arithmetic for a format.
template <class Body>
void by_fastest(float, Body body) {
  body(Single());
}
template <class Body>
void by_fastest(Bf16, Body body) {
#if defined(__AMX_BF16__)
  Tiles::are_allowed() ? body(Tiles()) : body(Single());  // an Intel takes longer for pairs than for single numbers
#elif defined(__AVX512BF16__)
  body(Pairs());
#else
  body(Single());
#endif
}

}  // namespace
