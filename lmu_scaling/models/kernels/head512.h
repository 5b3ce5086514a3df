/* The head's loss with sixteen lanes, once per type of operand: included by head512.c. Layouts: head.h.

   NAME(x): x for this type; PACK: numbers in a word; TARGET: the instructions; ADD(sum, a, b): sum + a b, per lane. */

#define INLINE static inline __attribute__((always_inline)) TARGET
#define CLASSES (64 * PACK)
#define TOKENS (192 * PACK) /* of a chunk: their exponentials are kept until the sums are known */

/* sum[i][j] = sum_k a[i, k] b[k][j] for `rows` x 16 `vectors` entries, all in registers; a is read with two strides. */
INLINE void NAME(block)(const uint32_t *a, ptrdiff_t row, ptrdiff_t step, const uint32_t *b, ptrdiff_t width, long depth,
                        __m512 sum[ROWS][3], const int rows, const int vectors) {
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = _mm512_setzero_ps();
  for (long k = 0; k < depth; k++, a += step, b += width) {
    __m512i v[3];
    UNROLL for (int j = 0; j < vectors; j++) v[j] = _mm512_loadu_si512(b + 16 * j);
    UNROLL for (int i = 0; i < rows; i++) {
      const __m512i one = _mm512_set1_epi32((int)a[i * row]);
      UNROLL for (int j = 0; j < vectors; j++) sum[i][j] = ADD(sum[i][j], one, v[j]);
    }
  }
}

INLINE void NAME(product_block)(const uint32_t *a, ptrdiff_t row, ptrdiff_t step, const uint32_t *b, ptrdiff_t width,
                                long depth, float *out, ptrdiff_t d, int add, const int rows, const int vectors) {
  __m512 sum[ROWS][3];
  NAME(block)(a, row, step, b, width, depth, sum, rows, vectors);
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < vectors; j++) {
    float *to = out + i * d + 16 * j;
    _mm512_storeu_ps(to, add ? _mm512_add_ps(_mm512_loadu_ps(to), sum[i][j]) : sum[i][j]);
  }
}

/* The same for any number of rows: out [rows][d], stored or added. */
static TARGET void NAME(product)(const uint32_t *a, ptrdiff_t row, ptrdiff_t step, const uint32_t *b, ptrdiff_t width,
                                 long depth, float *out, ptrdiff_t d, int add, long rows, int vectors) {
  long i = 0;
  for (; i + ROWS <= rows; i += ROWS) {
    if (vectors == 3) NAME(product_block)(a + i * row, row, step, b, width, depth, out + i * d, d, add, ROWS, 3);
    else if (vectors == 2) NAME(product_block)(a + i * row, row, step, b, width, depth, out + i * d, d, add, ROWS, 2);
    else NAME(product_block)(a + i * row, row, step, b, width, depth, out + i * d, d, add, ROWS, 1);
  }
  for (; i < rows; i++)
    for (int j = 0; j < vectors; j++)
      NAME(product_block)(a + i * row, row, step, b + 16 * j, width, depth, out + i * d + 16 * j, d, add, 1, 1);
}

/* e^x: 2^i 2^f with a polynomial of degree 5, relative error 2e-7; below -86 it stays at e^-86. NaN stays NaN, and
   above 88 it is inf, -inf or NaN: then the sum is not trusted. */
INLINE __m512 NAME(exponential)(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-86.0f), x); /* in this order */
  const __m512 whole = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
  const __m512 f = _mm512_fnmadd_ps(whole, _mm512_set1_ps(0.693147182f), x);
  __m512 e = _mm512_fmadd_ps(f, _mm512_set1_ps(0.00829762f), _mm512_set1_ps(0.04191563f));
  e = _mm512_fmadd_ps(f, e, _mm512_set1_ps(0.16667576f));
  e = _mm512_fmadd_ps(f, e, _mm512_set1_ps(0.4999889f));
  e = _mm512_fmadd_ps(f, e, _mm512_set1_ps(0.9999997f));
  e = _mm512_fmadd_ps(f, e, _mm512_set1_ps(1.0000001f));
  return _mm512_scalef_ps(e, whole);
}

/* Logits of `rows` classes from `class` on, for `vectors` of tokens from `t` on. */
INLINE void NAME(logits)(const Head *head, long class, int t, __m512 sum[ROWS][3], const int rows, const int vectors) {
  const long depth = head->d / PACK;
  NAME(block)((const uint32_t *)head->w + class * depth, depth, 1, (const uint32_t *)head->columns + t, TOKENS, depth,
              sum, rows, vectors);
}

INLINE void NAME(largest_block)(Head *head, long class, int t, const int rows, const int vectors) {
  __m512 sum[ROWS][3];
  NAME(logits)(head, class, t, sum, rows, vectors);
  UNROLL for (int j = 0; j < vectors; j++) {
    __m512 top = class ? _mm512_loadu_ps(head->shift + t + 16 * j) : sum[0][j];
    UNROLL for (int i = 0; i < rows; i++) top = _mm512_max_ps(top, sum[i][j]);
    _mm512_storeu_ps(head->shift + t + 16 * j, top);
  }
}

/* The largest logit of each token among some classes. */
static TARGET void NAME(largest)(Head *head, long classes) {
  for (int t = 0; t < head->tokens; t += 48) {
    long at = 0;
    for (; at + ROWS <= classes; at += ROWS) NAME(largest_block)(head, at, t, ROWS, 3);
    for (; at < classes; at++) NAME(largest_block)(head, at, t, 1, 3);
  }
}

/* Exponentials of `rows` classes from `class` on, kept in head->e and, in words along the classes, in `words`. */
INLINE void NAME(exponential_block)(const Head *head, long class, int t, float *sums, uint32_t *words, const int rows) {
  __m512 sum[ROWS][3];
  NAME(logits)(head, class, t, sum, rows, 3);
  UNROLL for (int j = 0; j < 3; j++) {
    const int at = t + 16 * j;
    const __m512 shift = _mm512_loadu_ps(head->shift + at);
    __m512 total = _mm512_loadu_ps(sums + at);
    UNROLL for (int i = 0; i < rows; i += PACK) {
      const __m512 e = NAME(exponential)(_mm512_sub_ps(sum[i][j], shift));
      total = _mm512_add_ps(total, e);
#if PACK == 2
      const __m512 f = i + 1 < rows ? NAME(exponential)(_mm512_sub_ps(sum[(i + 1) % rows][j], shift)) : _mm512_setzero_ps();
      total = _mm512_add_ps(total, f);
      const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(f, e);
      uint16_t *kept = (uint16_t *)head->e + (class + i) * TOKENS + at;
      _mm256_storeu_si256((void *)kept, _mm512_castsi512_si256(both));
      if (i + 1 < rows) _mm256_storeu_si256((void *)(kept + TOKENS), _mm512_extracti64x4_epi64(both, 1));
      _mm512_storeu_si512(words + i / 2 * TOKENS + at, interleave(both));
#else
      _mm512_storeu_ps((float *)words + i * TOKENS + at, e);
#endif
    }
    _mm512_storeu_ps(sums + at, total);
  }
}

/* A tile of classes: exponentials, with their sums and their part of dh. */
static TARGET void NAME(tile)(const Head *head, long start, long count, float *sums, float *dh, int add) {
  const long d = head->d, vectors = d / 16, groups = (vectors + 2) / 3, depth = (count + PACK - 1) / PACK;
  const long tokens = (head->tokens + ROWS - 1) / ROWS * ROWS;
#if PACK == 2
  uint32_t words[64 * TOKENS], panel[64 * 48];
#else
  uint32_t *words = (uint32_t *)head->e + start * TOKENS;
#endif
  for (int t = 0; t < head->tokens; t += 48) {
    long i = 0;
    for (; i + ROWS <= count; i += ROWS)
      NAME(exponential_block)(head, start + i, t, sums, words + i / PACK * TOKENS, ROWS);
    for (; i + PACK <= count; i += PACK)
      NAME(exponential_block)(head, start + i, t, sums, words + i / PACK * TOKENS, PACK);
    if (i < count) NAME(exponential_block)(head, start + i, t, sums, words + i / PACK * TOKENS, 1);
  }
  if (!head->dw) return;
  for (long g = 0; g < groups; g++) { /* of three vectors, or two: single ones would be slow */
    const long j = vectors * g / groups, some = vectors * (g + 1) / groups - j;
#if PACK == 2
    set_panel((const uint16_t *)head->w + start * d + 16 * j, d, count, some, panel);
    NAME(product)(words, 1, TOKENS, panel, 48, depth, dh + 16 * j, d, add, tokens, (int)some);
#else
    const uint32_t *w = (const uint32_t *)head->w + start * d + 16 * j;
    NAME(product)(words, 1, TOKENS, w, d, depth, dh + 16 * j, d, add, tokens, (int)some);
#endif
  }
}

static TARGET int NAME(exponentials)(const void *argument, int thread, long first, long last) {
  const Head *head = argument;
  (void)thread;
  for (long part = first; part < last; part++) {
    const long from = part_start(head, part), to = part_start(head, part + 1);
    float *sums = head->sums + part * TOKENS, *dh = head->parts + part * TOKENS * head->d;
    memset(sums, 0, TOKENS * sizeof(float));
    for (long at = from; at < to; at += CLASSES)
      NAME(tile)(head, at, to - at < CLASSES ? to - at : CLASSES, sums, dh, at > from);
  }
  return 0;
}

static TARGET int NAME(weights)(const void *argument, int thread, long first, long last) {
  const Head *head = argument;
  const long d = head->d, vectors = d / 16, groups = (vectors + 2) / 3, end = part_start(head, last);
  const long depth = (head->tokens + PACK - 1) / PACK, width = TOKENS / PACK;
  (void)thread;
  for (long at = part_start(head, first); at < end; at += CLASSES)
    for (long g = 0; g < groups; g++) {
      const long j = vectors * g / groups, some = vectors * (g + 1) / groups - j;
      NAME(product)((const uint32_t *)head->e + at * width, width, 1, (const uint32_t *)head->rows + 16 * j, d, depth,
                    head->dw + at * d + 16 * j, d, !head->first, end - at < CLASSES ? end - at : CLASSES, (int)some);
    }
  return 0;
}

static const HeadForm NAME(form) = {PACK, TOKENS, CLASSES, NAME(largest), NAME(exponentials), NAME(weights), NAME(rows)};

#undef INLINE
#undef CLASSES
#undef TOKENS
