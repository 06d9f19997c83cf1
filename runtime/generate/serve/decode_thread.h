// The one thread that decodes, and the requests that wait for it.
#pragma once

#include "runtime/generate/generator.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace espalier::rt {

/// What one caller hears: pieces of text in their order, then the end. Filled by the decoding thread.
class Answer {
public:
  /// Waits for more: all text since the last call, and whether the end came with it. None where there will be no end.
  std::optional<std::pair<std::string, bool>> next();
  /// Once next() has told of the end.
  const Completion &completion() const { return theEnd; }
  /// Nobody waits any more.
  void abandon();

  bool tell(const std::string &text, const Completion *end);
  void fail();

private:
  std::mutex mutex;
  std::condition_variable told;
  std::string text;
  Completion theEnd;
  bool hasEnded = false, hasFailed = false, isAbandoned = false;
};

class DecodeThread {
public:
  DecodeThread(Decoder &decoder, const Tokenizer *tokenizer, size_t waiting);
  ~DecodeThread();

  /// Null where too many wait, or decoding has failed.
  std::shared_ptr<Answer> ask(Request request);
  /// What the model failed of; null where it has not.
  std::exception_ptr failure();

private:
  struct Job {
    Request request;
    std::shared_ptr<Answer> answer;
  };

  void loop();
  /// Moves what fits from the queue to the generator; false at the end.
  bool admit(Generator &generator);

  Decoder &decoder;
  std::unique_ptr<Tokenizer> tokenizer; ///< of the thread
  const size_t waiting;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  std::vector<std::weak_ptr<Answer>> running;
  bool isEnding = false;
  std::exception_ptr fault;
  std::jthread thread;
};

} // namespace espalier::rt
