/* The head's loss by AVX-512, in float32 and in bfloat16, where the processor has it: asked when the program runs. */

#include "head.h"

#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 11) || (!defined(__clang__) && __GNUC__ >= 10))

#include <immintrin.h>

#define ROWS 8     /* of a block: 24 of the 32 registers hold its sums */

/* float32 ------------------------------------------------------------------------------------------------------------ */

#define NAME(x) float32_##x
#define PACK 1
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define ADD(sum, a, b) _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum)

static void float32_rows(const Head *head, const float *factor) {
  const float *h = head->h;
  for (long t = 0; t < head->tokens; t++)
    for (long c = 0; c < head->d; c++) ((float *)head->rows)[t * head->d + c] = h[t * head->d + c] * factor[t];
}

#include "head512.h"
#undef NAME
#undef PACK
#undef TARGET
#undef ADD

/* bfloat16 ----------------------------------------------------------------------------------------------------------- */

#define NAME(x) bfloat16_##x
#define PACK 2
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define ADD(sum, a, b) _mm512_dpbf16_ps(sum, (__m512bh)(a), (__m512bh)(b))

/* Two halves of sixteen to sixteen pairs. */
static inline __attribute__((always_inline)) TARGET __m512i interleave(__m512i halves) {
  const __m512i order = _mm512_add_epi32(_mm512_set1_epi32(0x100000), _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12,
      11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi32(0x10001)));
  return _mm512_permutexvar_epi16(order, halves);
}

static inline __attribute__((always_inline)) TARGET __m512i two_rows(const uint16_t *first, const uint16_t *second) {
  const __m256i none = _mm256_setzero_si256(), a = first ? _mm256_loadu_si256((const void *)first) : none;
  const __m256i b = second ? _mm256_loadu_si256((const void *)second) : none;
  return interleave(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1));
}

/* Sixteen times `vectors` columns of some weights, in pairs along the classes. */
static TARGET void set_panel(const uint16_t *w, long d, long count, long vectors, uint32_t *panel) {
  for (long k = 0; k < count; k += 2)
    for (long j = 0; j < vectors; j++) {
      const uint16_t *at = w + k * d + 16 * j;
      _mm512_storeu_si512(panel + k / 2 * 48 + 16 * j, two_rows(at, k + 1 < count ? at + d : NULL));
    }
}

static inline TARGET __m512 scaled(const Head *head, const float *factor, long t, long c) {
  if (t >= head->tokens) return _mm512_setzero_ps();
  const __m256i h = _mm256_loadu_si256((const void *)((const uint16_t *)head->h + t * head->d + c));
  const __m512 wide = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
  return _mm512_mul_ps(wide, _mm512_set1_ps(factor[t]));
}

static TARGET void bfloat16_rows(const Head *head, const float *factor) {
  for (long t = 0; t < head->tokens; t += 2)
    for (long c = 0; c < head->d; c += 16) {
      const __m512bh both = _mm512_cvtne2ps_pbh(scaled(head, factor, t + 1, c), scaled(head, factor, t, c));
      _mm512_storeu_si512((uint32_t *)head->rows + t / 2 * head->d + c, interleave((__m512i)both));
    }
}

#include "head512.h"

const HeadForm *lmu_head_avx512(int bfloat16) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return NULL;
  if (!bfloat16) return &float32_form;
  return __builtin_cpu_supports("avx512bf16") ? &bfloat16_form : NULL;
}

#else

const HeadForm *lmu_head_avx512(int bfloat16) {
  (void)bfloat16;
  return NULL;
}

#endif
