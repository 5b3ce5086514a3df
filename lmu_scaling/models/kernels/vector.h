/* Eight floats at a time, or sixteen with AVX-512, in GCC's and Clang's vector extensions, their exponential, and work
   shared among threads. A source that defines W as 8 keeps eight lanes on every processor. */

#ifndef LMU_VECTOR_H
#define LMU_VECTOR_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef W /* lanes */
#ifdef __AVX512F__
#define W 16
#include <immintrin.h>
#else
#define W 8
#endif
#endif
#define TILE 16 /* steps of time in a tile of pre-activations */
#define MOST_THREADS 64
#define UNROLL _Pragma("GCC unroll 16")

typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));

#ifdef __clang__
#define MERGE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MERGE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif

static inline vec load(const float *from) { vec v; memcpy(&v, from, sizeof v); return v; }
static inline void store(float *to, vec v) { memcpy(to, &v, sizeof v); }
static inline vec all(float a) { return (vec){0} + a; }

/* The first `count` lanes, where a row of channels ends. */
static inline vec load_some(const float *from, int count) {
  if (count >= W) return load(from);
#if W == 16
  return (vec)_mm512_maskz_loadu_ps(count > 0 ? (__mmask16)((1u << count) - 1) : 0, from);
#else
  vec v = {0};
  if (count > 0) memcpy(&v, from, 4 * (size_t)count);
  return v;
#endif
}
static inline void store_some(float *to, vec v, int count) {
  if (count >= W) {
    store(to, v);
    return;
  }
#if W == 16
  _mm512_mask_storeu_ps(to, count > 0 ? (__mmask16)((1u << count) - 1) : 0, (__m512)v);
#else
  if (count > 0) memcpy(to, &v, 4 * (size_t)count);
#endif
}

/* Of each block of 2 h lanes: LOW keeps the first half of both vectors, HIGH the second half. */
#if W == 16
#define LOW_1(a, b) MERGE(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30)
#define HIGH_1(a, b) MERGE(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31)
#define LOW_2(a, b) MERGE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_2(a, b) MERGE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define LOW_4(a, b) MERGE(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define HIGH_4(a, b) MERGE(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define LOW_8(a, b) MERGE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define HIGH_8(a, b) MERGE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#else
#define LOW_1(a, b) MERGE(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define HIGH_1(a, b) MERGE(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#define LOW_2(a, b) MERGE(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_2(a, b) MERGE(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW_4(a, b) MERGE(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH_4(a, b) MERGE(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#endif

/* Swaps blocks of h rows and lanes, in all pairs of rows that are h apart. */
#define SWAP(v, h)                                     \
  UNROLL for (int i = 0; i < W; i++)                   \
    if (!(i & h)) {                                    \
      const vec a = v[i], b = v[i + h];                \
      v[i] = LOW_##h(a, b), v[i + h] = HIGH_##h(a, b); \
    }

/* Rows to columns, by swapping ever larger blocks. */
static inline void transpose(vec v[W]) {
  SWAP(v, 1)
  SWAP(v, 2)
  SWAP(v, 4)
#if W == 16
  SWAP(v, 8)
#endif
}

/* Lane i of the result is the sum over the lanes of v[i]. */
static inline vec sums_of(const vec v[W]) {
  vec a[4], b[2];
  for (int i = 0; i < 4; i++) {
#if W == 16
    const vec low = LOW_8(v[i], v[i + 8]) + HIGH_8(v[i], v[i + 8]);
    const vec high = LOW_8(v[i + 4], v[i + 12]) + HIGH_8(v[i + 4], v[i + 12]);
    a[i] = LOW_4(low, high) + HIGH_4(low, high);
#else
    a[i] = LOW_4(v[i], v[i + 4]) + HIGH_4(v[i], v[i + 4]);
#endif
  }
  for (int i = 0; i < 2; i++) b[i] = LOW_2(a[i], a[i + 2]) + HIGH_2(a[i], a[i + 2]);
  return LOW_1(b[0], b[1]) + HIGH_1(b[0], b[1]);
}

/* b where they cannot be compared. */
static inline vec larger(vec a, vec b) {
  ivec m = a > b;
  return (vec)(((ivec)a & m) | ((ivec)b & ~m));
}

/* e^x for x below 88: 2^i 2^f with a polynomial of degree 6, relative error 2e-7; below -87 it stays at e^-87. */
static inline vec exponential(vec x) {
  const float magic = 12582912.0f; /* adding 1.5 * 2^23 rounds to the nearest whole number */
  x = larger(all(-87.0f), x); /* in this order NaN stays NaN */
  vec shifted = x * 1.44269504f + magic;
  vec whole = shifted - magic;
  vec f = x - whole * 0.693359375f + whole * 2.12194440e-4f; /* ln 2 in two parts */
  vec e = 0.00833345205f + f * 0.00139430652f;
  e = 1.0f + f * (1.0f + f * (0.5f + f * (0.166666667f + f * (0.0416666418f + f * e))));
  ivec exponent = ((ivec)shifted - (ivec)all(magic) + 127) << 23;
  return e * (vec)exponent;
}

/* Runs work(job, thread, first, last) on equal shares of the items. Returns 0, or 1 when memory ran out. */
int lmu_share(int (*work)(const void *, int, long, long), const void *job, long items, int threads);

#endif
