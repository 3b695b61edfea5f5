// Defines what loops over numbers on a CPU share: number formats, vectors, e^x, dropout's masks and sums.
//
// Numbers are fp32 or bf16 in memory and fp32 in registers. Compilers turn the inner loops into vector instructions.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#ifndef __has_builtin  // older compilers
#define __has_builtin(name) 0
#endif

namespace {

using Count = std::int64_t;
using Bits = std::uint32_t;

// Numbers in a vector. Compilers keep wider vectors in memory, which is ten times slower.
#if defined(__AVX512F__)
constexpr Count LANES = 16;
#elif defined(__AVX__)
constexpr Count LANES = 8;
#else
constexpr Count LANES = 4;
#endif
constexpr Count FEW = 1 << 14;  // so few elements take less time than it takes to wake other threads

struct Bf16 {
  std::uint16_t bits;
};

template <class To, class From>
inline To as(From value) {
  To same;
  std::memcpy(&same, &value, sizeof same);
  return same;
}

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef Bits BitsVector __attribute__((vector_size(4 * LANES)));

inline Bits bits_of(float value) { return as<Bits>(value); }
inline BitsVector bits_of(Vector value) { return as<BitsVector>(value); }

inline Count rounded(Count count, Count step) { return (count + step - 1) / step * step; }

inline float load(const float& place) { return place; }
inline float load(const Bf16& place) { return as<float>(Bits(place.bits) << 16); }
inline void store(float& place, float value) { place = value; }
inline void store(Bf16& place, float value) {
  Bits bits = as<Bits>(value);
  bits += 0x7fff + (bits >> 16 & 1);  // rounds to nearest, ties to even
  place.bits = value != value ? 0x7fc0 : bits >> 16;
}

inline Vector& vector_at(float* place) { return *reinterpret_cast<Vector*>(place); }

inline Vector load_vector(const float* place) { return vector_at(const_cast<float*>(place)); }
inline Vector load_vector(const Bf16* place) {
  typedef std::uint16_t Halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
  return as<Vector>(__builtin_convertvector(*reinterpret_cast<const Halves*>(place), BitsVector) << 16);
}
inline void store_vector(float* place, Vector value) { vector_at(place) = value; }
inline void store_vector(Bf16* place, Vector value) {
#ifdef __AVX512BF16__
  const auto rounded = _mm512_cvtneps_pbh(as<__m512>(value));
  std::memcpy(place, &rounded, sizeof rounded);
#else
  for (Count lane = 0; lane < LANES; lane++) store(place[lane], value[lane]);
#endif
}

inline Vector added(Vector one, Vector other) { return one + other; }
inline Vector higher(Vector one, Vector other) { return other > one ? other : one; }

#if __has_builtin(__builtin_shufflevector) && defined(__AVX512F__)
#define SHUFFLES_16 1
#endif

// Reduces all lanes to one number, by halves. A compiler would take one lane after the other.
template <class Join>
inline float over_lanes(Vector all, Join join) {
#ifdef SHUFFLES_16
  all = join(all, __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  all = join(all, __builtin_shufflevector(all, all, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  all = join(all, __builtin_shufflevector(all, all, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  all = join(all, __builtin_shufflevector(all, all, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#else
  for (Count half = LANES / 2; half > 0; half /= 2) {
    Vector moved = all;
    for (Count lane = 0; lane < half; lane++) moved[lane] = all[lane + half];
    all = join(all, moved);
  }
#endif
  return all[0];
}

// Returns e^x to 2 units in the last place, 0 below -87: 2^n times a polynomial of the rest, where |rest| <= ln 2 / 2
// (Cephes' expf).
template <class Value>
inline Value exponential(Value x) {
  const float magic = 1.5f * (1 << 23);  // adding it rounds to a whole number in the lowest bits
  const Value bounded = x > 88.0f ? Value{} + 88.0f : x;
  const Value shifted = bounded * 1.44269504f + magic;
  const Value n = shifted - magic;
  const Value r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  Value p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return x < -87.0f ? Value{} : p * as<Value>((bits_of(shifted) << 23) + 0x3f800000u);
}

// Dropout's masks are computed and never stored. One hash of two random keys and a number decides for two elements, by
// its lower and upper 16 bits, so a rate is a multiple of 1 / 65,536.
struct Mask {
  Bits first, second;
  Bits drops;      // of 65,536
  float enlarged;  // factor of kept elements

  Mask(Count first, Count second, Count drops, float enlarged)
      : first(Bits(first)), second(Bits(second)), drops(Bits(drops)), enlarged(enlarged) {}

  static Count hashes(Count count) { return rounded(count, 2 * LANES) / 2; }

  // Writes 1 for each kept element and 0 for each dropped one, for 2 * hashes(count) elements; `number` is the number
  // of the first hash. Two elements that share a hash are LANES apart, so each is in a vector of its own.
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

// A buffer for the mask of a row, which is drawn only if something is dropped.
struct Kept {
  Mask mask;
  Count width;
  std::vector<float> kept;

  Kept(Mask mask, Count width) : mask(mask), width(width), kept(2 * Mask::hashes(width), 1.0f) {}

  const float* draw(Bits number) {
    if (mask.drops) mask.draw(kept.data(), width, number);
    return kept.data();
  }
};

// Returns the sum of term(i) over a row.
template <class Term>
inline float sum_over(Count width, Term term) {
  float lanes[LANES] = {};
  Count start = 0;
  for (; start + LANES <= width; start += LANES)
#pragma omp simd
    for (Count lane = 0; lane < LANES; lane++) lanes[lane] += term(start + lane);
  for (; start < width; start++) lanes[0] += term(start);
  return over_lanes(load_vector(lanes), added);
}

}  // namespace
