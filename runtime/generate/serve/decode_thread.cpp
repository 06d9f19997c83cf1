#include "runtime/generate/serve/decode_thread.h"

#include "runtime/thread_pool.h"

namespace espalier::rt {

std::optional<std::vector<Answer::Piece>> Answer::take() {
  std::lock_guard lock(mutex);
  if (hasFailed)
    return std::nullopt;
  return std::exchange(pieces, {});
}

bool Answer::isOver() {
  std::lock_guard lock(mutex);
  return left == 0 && pieces.empty();
}

void Answer::tell(size_t choice, News news) {
  bool isFirst;
  {
    std::lock_guard lock(mutex);
    bool isEnd = news.end != nullptr;
    if (isEnd) {
      theEnds[choice] = *news.end;
      --left;
    }
    news.end = nullptr; // belongs to the generator
    isFirst = pieces.empty();
    pieces.push_back({choice, std::move(news), isEnd});
  }
  if (isFirst)
    wake();
}

void Answer::fail() {
  {
    std::lock_guard lock(mutex);
    hasFailed = left > 0;
    if (!hasFailed)
      return;
  }
  wake();
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

bool DecodeThread::ask(const std::shared_ptr<Answer> &answer, std::vector<Request> choices) {
  std::lock_guard lock(mutex);
  if (jobs.size() >= waiting)
    dropAbandoned();
  if (jobs.size() >= waiting || fault || isEnding)
    return false;
  for (size_t choice = 0; choice < choices.size(); ++choice)
    jobs.push_back({std::move(choices[choice]), answer, choice});
  changed.notify_all();
  return true;
}

void DecodeThread::dropAbandoned() {
  std::erase_if(jobs, [](const Job &job) { return job.answer->isAbandoned(); });
}

DecodeThread::Load DecodeThread::load() {
  std::lock_guard lock(mutex);
  return {active, jobs.size()};
}

std::exception_ptr DecodeThread::failure() {
  std::lock_guard lock(mutex);
  return fault;
}

bool DecodeThread::admit(Generator &generator) {
  std::unique_lock lock(mutex);
  active = generator.size();
  changed.wait(lock, [&] { return isEnding || !generator.isIdle() || !jobs.empty(); });
  std::erase_if(running, [](const auto &answer) { return answer.expired(); });
  dropAbandoned();
  while (!isEnding && !generator.isFull() && !jobs.empty()) {
    Job job = std::move(jobs.front());
    jobs.pop_front();
    running.push_back(job.answer);
    generator.add(
        std::move(job.request),
        [answer = job.answer, choice = job.choice](News news) { answer->tell(choice, std::move(news)); },
        [answer = job.answer] { return answer->isAbandoned(); });
  }
  active = generator.size();
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
