/* The C interface of Espalier: training in this process, and the tensors of checkpoints. Python's package calls it
 * through ctypes; any language with C calls can do the same.
 *
 * Every function may be called from any thread. A checkpoint may be used by several threads at a time. Functions never
 * throw. Texts are UTF-8, end with a zero byte and live until the call named at their declaration. */
#ifndef ESPALIER_H
#define ESPALIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of this interface. It rises when a function or a structure changes in a way that callers notice. */
#define ESPALIER_INTERFACE 2

/** Returns ESPALIER_INTERFACE of the library, which must equal that of the caller's header. */
int32_t espalier_interface(void);
/** Returns the version of Espalier, such as "0.1.0". */
const char *espalier_version(void);

/** The result of a call. The values are the exit codes of the command. */
typedef enum {
  ESPALIER_OK = 0,
  ESPALIER_FAILED = 1,       /**< a run failed after its start, or an internal error */
  ESPALIER_INPUT_ERROR = 2,  /**< a file or an argument is wrong */
  ESPALIER_DOES_NOT_FIT = 3, /**< this machine has too little memory */
} espalier_status;

/** What failed. */
typedef struct {
  espalier_status status;
  const char *message; /**< a sentence with a way out */
  const char *file;    /**< empty: no file is at fault */
  int64_t line;        /**< from 1; 0: none */
} espalier_error;

/** Returns the error of the last call of this thread that failed. It lives until the next call of this thread. */
const espalier_error *espalier_last_error(void);

/** Receives a line of text, which lives until the function returns. A nonzero result asks for the end. */
typedef int32_t (*espalier_line)(void *context, const char *line);

/** A training run. Zeros and null pointers mean the defaults, which `espalier run --help` describes. */
typedef struct {
  const char *plan;        /**< the .plan file; required */
  const char *const *data; /**< the words of --data */
  size_t data_count;
  int64_t steps; /**< 0: the plan's */
  const char *metrics, *checkpoint, *load;
  int64_t save_every, eval_every;
  int32_t resume;  /**< 1: --resume */
  int32_t threads; /**< per rank */
  /** Receives the metrics of each step as a JSON object, and at the end those of the evaluations, on the thread of the
   * call. A nonzero result ends the run, with a checkpoint, after the step that follows. */
  espalier_line on_metrics;
  void *context;
  int32_t require_signed; /**< 1: --require-signed; otherwise a note on standard error names an unknown signer */
} espalier_run_options;

/** Trains with all ranks as threads of this process. Returns after the last step. */
espalier_status espalier_run(const espalier_run_options *options);

/** An open checkpoint. */
typedef struct espalier_checkpoint espalier_checkpoint;

/** A tensor of a checkpoint, unsharded. Its texts and its shape live as long as the checkpoint. */
typedef struct {
  const char *kind; /**< value, master, moment1, moment2 or momentum */
  const char *name; /**< of the parameter */
  const char *type; /**< as in safetensors: F32, BF16, ... */
  const int64_t *shape;
  size_t rank; /**< number of dimensions */
  uint64_t bytes;
  const char *file; /**< that holds the whole tensor, row-major, little-endian; null: ranks stored shards */
  uint64_t offset;  /**< of the tensor in the file */
} espalier_tensor;

/** Opens a checkpoint, or the newest one of a folder of checkpoints. */
espalier_status espalier_checkpoint_open(const char *folder, espalier_checkpoint **opened);
/** Closes it. Null has no effect. */
void espalier_checkpoint_close(espalier_checkpoint *checkpoint);
/** Return the folder, the number of optimizer steps before the checkpoint, and the model's name. */
const char *espalier_checkpoint_folder(const espalier_checkpoint *checkpoint);
int64_t espalier_checkpoint_step(const espalier_checkpoint *checkpoint);
const char *espalier_checkpoint_model(const espalier_checkpoint *checkpoint);
/** Returns the number of tensors of all kinds. They are sorted by kind and name. */
size_t espalier_checkpoint_tensors(const espalier_checkpoint *checkpoint);
/** Returns a tensor; null for an index that is too large. */
const espalier_tensor *espalier_checkpoint_tensor(const espalier_checkpoint *checkpoint, size_t index);
/** Writes the bytes of a tensor to `target`, which has room for them. Joins its shards and compares them with their
 * checksums. */
espalier_status espalier_checkpoint_read(const espalier_checkpoint *checkpoint, size_t index, void *target);
/** Compares every byte of the checkpoint with its checksums. `on_fault` receives each fault. A fault is no error of the
 * call. */
espalier_status espalier_checkpoint_verify(const espalier_checkpoint *checkpoint, espalier_line on_fault,
                                           void *context);

#ifdef __cplusplus
}
#endif

#endif
