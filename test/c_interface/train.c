/* Trains by a plan in this process, stops where the caller asks for it, and reads the checkpoint. Usage: train PLAN FOLDER */
#include <espalier.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t print_until_two(void *lines, const char *line) {
  printf("%s\n", line);
  return ++*(int *)lines == 2;
}

static int32_t print_fault(void *context, const char *fault) {
  (void)context;
  printf("fault: %s\n", fault);
  return 0;
}

static int failed(const char *call) {
  const espalier_error *error = espalier_last_error();
  printf("%s: status %d, file '%s', line %lld: %s\n", call, (int)error->status, error->file, (long long)error->line,
         error->message);
  return (int)error->status;
}

static int read_checkpoint(const char *folder) {
  espalier_checkpoint *checkpoint;
  if (espalier_checkpoint_open(folder, &checkpoint) != ESPALIER_OK)
    return failed("open");
  printf("%s after %lld steps, %zu tensors\n", espalier_checkpoint_model(checkpoint),
         (long long)espalier_checkpoint_step(checkpoint), espalier_checkpoint_tensors(checkpoint));
  size_t differing = 0;
  for (size_t i = 0; i < espalier_checkpoint_tensors(checkpoint); ++i) {
    const espalier_tensor *tensor = espalier_checkpoint_tensor(checkpoint, i);
    uint64_t elements = 1;
    for (size_t dim = 0; dim < tensor->rank; ++dim)
      elements *= (uint64_t)tensor->shape[dim];
    if (strcmp(tensor->type, "F32") != 0 || tensor->bytes != 4 * elements)
      return printf("%s has another size\n", tensor->name), 1;
    char *joined = malloc(tensor->bytes), *stored = malloc(tensor->bytes);
    FILE *file = fopen(tensor->file, "rb");
    if (espalier_checkpoint_read(checkpoint, i, joined) != ESPALIER_OK)
      return failed("read");
    if (!file || fseek(file, (long)tensor->offset, SEEK_SET) != 0 ||
        fread(stored, 1, tensor->bytes, file) != tensor->bytes)
      return printf("%s cannot be read from its file\n", tensor->name), 1;
    differing += memcmp(joined, stored, tensor->bytes) != 0;
    fclose(file);
    free(stored);
    free(joined);
  }
  printf("%zu tensors differ from the bytes of their files\n", differing);
  if (espalier_checkpoint_tensor(checkpoint, espalier_checkpoint_tensors(checkpoint)))
    return 1;
  if (espalier_checkpoint_verify(checkpoint, print_fault, NULL) != ESPALIER_OK)
    return failed("verify");
  espalier_checkpoint_close(checkpoint);
  espalier_checkpoint_close(NULL);
  return 0;
}

int main(int argc, char **argv) {
  const char *data[] = {"mock"};
  int lines = 0;
  espalier_run_options options = {0};
  if (argc != 3 || espalier_interface() != ESPALIER_INTERFACE)
    return 1;
  printf("espalier %s\n", espalier_version());
  options.plan = argv[1];
  options.data = data;
  options.data_count = 1;
  options.steps = 100;
  options.checkpoint = argv[2];
  options.on_metrics = print_until_two;
  options.context = &lines;
  if (espalier_run(&options) != ESPALIER_OK)
    return failed("run");
  options.steps = -1;
  if (espalier_run(&options) == ESPALIER_OK)
    return 1;
  failed("run");
  options.plan = "absent.plan";
  if (espalier_run(&options) == ESPALIER_OK)
    return 1;
  failed("run");
  return read_checkpoint(argv[2]);
}
