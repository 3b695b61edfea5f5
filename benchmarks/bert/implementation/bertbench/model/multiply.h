// Matrix products of what lies in a core's cache, by vectors or, in bf16 on an Intel with AMX, by tiles; the room that
// their operands take there.
//
// A unit is 32 bits along the depth of a product: one fp32 number, or two of bf16, which one instruction multiplies and
// adds up in fp32. A left matrix has rows of units; a right one a unit of each column in each row.

#pragma once

#include <algorithm>
#include <new>
#include <type_traits>

#include "loops.h"

#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define ALONE __attribute__((noinline))  // a copy for each call takes compilers half as long again

namespace {

typedef float Unit __attribute__((may_alias));

// A matrix of units: its rows lie `stride` units apart.
struct Units {
  Unit* first;
  Count stride;

  Unit* row(Count number) const { return first + number * stride; }
  Units from(Count number, Count column = 0) const { return {row(number) + column, stride}; }
};

// The sums of a block take half of the registers: AVX-512 and ARM have 32.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr Count ROWS = 8;
#else
constexpr Count ROWS = 4;
#endif
constexpr Count VECTORS = 2;

// Writes or adds to ROWS rows of VECTORS vectors: the sum over depth of left [row, depth] * right [depth, ...].
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

constexpr Count TILE = 32;  // columns, and for tiles numbers along depth, are multiples of it, as in sequences.py

// Ways of multiplying: each has its format of numbers, how many of them make a unit, of what the number of rows is a
// multiple, a session in which it multiplies, and `multiply`: left [rows, depth] @ right [depth, columns] becomes the
// result or, with `adds`, is added to it.

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
// Eight tiles of 16 rows of 64 bytes. It lies in memory from the start: of what a function writes there, a compiler
// keeps only what it knows to be read, and of this it doesn't.
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

  // Sets the tiles; afterwards those of before are set, which oneDNN takes to be still there.
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

// to [16, 16] = from, transposed: each of four rounds zips rows with those half of all further down.
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

// to [columns, rows] = given [rows, columns], transposed; both are multiples of 16
ALONE inline void transpose(Units given, Units to, Count rows, Count columns) {
  for (Count row = 0; row < rows; row += 16)
    for (Count column = 0; column < columns; column += 16)
      transpose_block(given.from(row, column), to.from(column, row));
}

// to [rows / 2, columns] has units of two neighbouring rows of bf16 numbers, which lie `stride` numbers apart.
inline void zip(const Bf16* from, Count stride, Units to, Count rows, Count columns) {
  for (Count row = 0; row < rows; row += 2, from += 2 * stride) {
    Unit* const pair = to.row(row / 2);
#pragma omp simd
    for (Count i = 0; i < columns; i++) pair[i] = as<float>(Bits(from[i].bits) | Bits(from[stride + i].bits) << 16);
  }
}

// Rows that lie an odd number of cache lines apart: an even one would let columns share few places of the cache.
inline Count spread(Count columns) { return columns / 16 % 2 ? columns : columns + 16; }

template <class From, class To>
inline void copy(const From* from, To* to, Count count) {
  if constexpr (std::is_same_v<From, To>) {
    // by vectors: a call of memcpy takes as long as half of a short row
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

// Room for a matrix of units.
struct Room {
  std::vector<float, Lines<float>> units;

  Units fit(Count rows, Count columns) {
    units.resize(rows * columns);
    return {units.data(), columns};
  }
};

// [rows / UNIT, columns] of numbers [rows, columns]
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
