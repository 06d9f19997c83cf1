#include "runtime/generate/serve/decode_thread.h"

#include "runtime/thread_pool.h"

namespace espalier::rt {

std::optional<std::pair<std::string, bool>> Answer::next() {
  std::unique_lock lock(mutex);
  told.wait(lock, [&] { return !text.empty() || hasEnded || hasFailed; });
  if (hasFailed)
    return std::nullopt;
  return std::pair(std::exchange(text, ""), hasEnded);
}

void Answer::abandon() {
  std::lock_guard lock(mutex);
  isAbandoned = true;
}

bool Answer::tell(const std::string &piece, const Completion *end) {
  std::lock_guard lock(mutex);
  text += piece;
  if (end) {
    theEnd = *end;
    hasEnded = true;
  }
  told.notify_all();
  return !isAbandoned;
}

void Answer::fail() {
  std::lock_guard lock(mutex);
  hasFailed = !hasEnded;
  told.notify_all();
}

DecodeThread::DecodeThread(Decoder &decoder, const Tokenizer *given, size_t waiting)
    : decoder(decoder), tokenizer(given ? given->clone() : nullptr), waiting(waiting),
      thread(startThread<std::jthread>([this] { loop(); })) {}

DecodeThread::~DecodeThread() {
  {
    std::lock_guard lock(mutex);
    isEnding = true;
    changed.notify_all();
  }
  thread.join();
}

std::shared_ptr<Answer> DecodeThread::ask(Request request) {
  std::lock_guard lock(mutex);
  if (jobs.size() >= waiting || fault || isEnding)
    return nullptr;
  auto answer = std::make_shared<Answer>();
  jobs.push_back({std::move(request), answer});
  changed.notify_all();
  return answer;
}

std::exception_ptr DecodeThread::failure() {
  std::lock_guard lock(mutex);
  return fault;
}

bool DecodeThread::admit(Generator &generator) {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return isEnding || !generator.isIdle() || !jobs.empty(); });
  std::erase_if(running, [](const auto &answer) { return answer.expired(); });
  while (!isEnding && !generator.isFull() && !jobs.empty()) {
    Job job = std::move(jobs.front());
    jobs.pop_front();
    running.push_back(job.answer);
    generator.add(std::move(job.request), [answer = job.answer](const std::string &text, const Completion *end) {
      return answer->tell(text, end);
    });
  }
  return !isEnding;
}

/// Fails all remaining requests when the loop ends.
void DecodeThread::loop() {
  std::exception_ptr caught;
  try {
    Generator generator(decoder, tokenizer.get());
    while (admit(generator))
      generator.step();
  } catch (...) {
    caught = std::current_exception();
  }
  std::lock_guard lock(mutex);
  fault = caught;
  isEnding = true;
  for (Job &job : jobs)
    job.answer->fail();
  for (const std::weak_ptr<Answer> &one : running)
    if (std::shared_ptr<Answer> answer = one.lock())
      answer->fail();
}

} // namespace espalier::rt
