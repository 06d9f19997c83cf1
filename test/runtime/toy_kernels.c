// Kernels of the toy model of sample_plan.h, with the ABI of generated code. They are built as a shared object that the
// tests embed in a plan.
#include <stdint.h>

typedef void *const *Buffers;
typedef const int64_t *Scalars;

// buffers: tokens, e, out. scalars: samples, features, first local feature, local features. extent: local features.
void toy_embed(Buffers b, Scalars s, int64_t begin, int64_t end) {
  const int32_t *tokens = b[0];
  const float *e = b[1];
  float *out = b[2];
  for (int64_t i = 0; i < s[0]; ++i)
    for (int64_t h = begin; h < end; ++h)
      out[i * s[3] + h] = e[h] * (float)tokens[i * s[1] + s[2] + h] / 256.0f;
}

// buffers: tokens, dout, de. scalars: as toy_embed, then 1 to overwrite.
void toy_embed_gradient(Buffers b, Scalars s, int64_t begin, int64_t end) {
  const int32_t *tokens = b[0];
  const float *dout = b[1];
  float *de = b[2];
  for (int64_t h = begin; h < end; ++h) {
    float sum = s[4] ? 0.0f : de[h];
    for (int64_t i = 0; i < s[0]; ++i)
      sum += dout[i * s[3] + h] * (float)tokens[i * s[1] + s[2] + h] / 256.0f;
    de[h] = sum;
  }
}

// y = x * w + shift. buffers: x, w, shift, y, saved. scalars: samples, local features.
void toy_block(Buffers b, Scalars s, int64_t begin, int64_t end) {
  const float *x = b[0], *w = b[1], *shift = b[2];
  float *y = b[3], *saved = b[4];
  for (int64_t i = 0; i < s[0]; ++i)
    for (int64_t h = begin; h < end; ++h) {
      saved[i * s[1] + h] = x[i * s[1] + h];
      y[i * s[1] + h] = x[i * s[1] + h] * w[h] + shift[0];
    }
}

// buffers: saved, w, dy, dx, dw. scalars: samples, local features, 1 to overwrite.
void toy_block_gradient(Buffers b, Scalars s, int64_t begin, int64_t end) {
  const float *x = b[0], *w = b[1], *dy = b[2];
  float *dx = b[3], *dw = b[4];
  for (int64_t h = begin; h < end; ++h) {
    float sum = s[2] ? 0.0f : dw[h];
    for (int64_t i = 0; i < s[0]; ++i) {
      sum += dy[i * s[1] + h] * x[i * s[1] + h];
      dx[i * s[1] + h] = dy[i * s[1] + h] * w[h];
    }
    dw[h] = sum;
  }
}

// buffers: dy, dshift. scalars: elements, 1 to overwrite. extent: 1.
void toy_shift_gradient(Buffers b, Scalars s, int64_t begin, int64_t end) {
  const float *dy = b[0];
  float *dshift = b[1], sum = s[1] ? 0.0f : dshift[0];
  for (int64_t i = 0; i < s[0]; ++i)
    sum += dy[i];
  dshift[0] = sum;
}

// loss = sum (x e - label)^2. buffers: x, e, labels, loss. scalars: as toy_embed. extent: 1.
void toy_loss(Buffers b, Scalars s, int64_t begin, int64_t end) {
  const float *x = b[0], *e = b[1];
  const int32_t *labels = b[2];
  float sum = 0;
  for (int64_t i = 0; i < s[0]; ++i)
    for (int64_t h = 0; h < s[3]; ++h) {
      float d = x[i * s[3] + h] * e[h] - (float)labels[i * s[1] + s[2] + h] / 256.0f;
      sum += d * d;
    }
  *(float *)b[3] = sum;
}

// buffers: loss, loss sum, token count. scalars: tokens, number of ranks with the same loss, by which each rank
// divides.
void toy_add_loss(Buffers b, Scalars s, int64_t begin, int64_t end) {
  *(float *)b[1] += *(const float *)b[0] / (float)s[1];
  *(float *)b[2] += (float)s[0] / (float)s[1];
}

// buffers: x, e, labels, dx, de, loss scale. scalars: as toy_embed, then 1 to overwrite.
void toy_loss_gradient(Buffers b, Scalars s, int64_t begin, int64_t end) {
  const float *x = b[0], *e = b[1], *lossScale = b[5];
  const int32_t *labels = b[2];
  float *dx = b[3], *de = b[4];
  for (int64_t h = begin; h < end; ++h) {
    float sum = s[4] ? 0.0f : de[h];
    for (int64_t i = 0; i < s[0]; ++i) {
      float d = x[i * s[3] + h] * e[h] - (float)labels[i * s[1] + s[2] + h] / 256.0f;
      float dz = 2 * d * *lossScale;
      dx[i * s[3] + h] = dz * e[h];
      sum += dz * x[i * s[3] + h];
    }
    de[h] = sum;
  }
}

// buffers: p, g, first and second moment, learning rate, gradient scale, both bias corrections, whether to apply.
void toy_adam(Buffers b, Scalars s, int64_t begin, int64_t end) {
  float *p = b[0], *m = b[2], *v = b[3];
  const float *g = b[1], *rate = b[4], *scale = b[5], *bias1 = b[6], *bias2 = b[7], *apply = b[8];
  if (*apply == 0)
    return;
  for (int64_t i = begin; i < end; ++i) {
    float gradient = g[i] * *scale;
    m[i] = 0.9f * m[i] + 0.1f * gradient;
    v[i] = 0.99f * v[i] + 0.01f * gradient * gradient;
    p[i] -= *rate * m[i] * *bias1 / (__builtin_sqrtf(v[i] * *bias2) + 1e-8f);
  }
}
