// The thread that decodes, and its queue of requests.
#pragma once

#include "runtime/generate/generator.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace espalier::rt {

/// The output of one request: pieces of text in order, then the end. Written by the decoding thread.
class Answer {
public:
  /// Waits for output. Returns all text since the last call and whether it ends the answer; nothing if decoding failed.
  std::optional<std::pair<std::string, bool>> next();
  /// Returns the completion. Requires that next() has returned the end.
  const Completion &completion() const { return theEnd; }
  /// Cancels the request.
  void abandon();

  /// Called by the decoding thread: adds text or the end. Returns false if the answer was abandoned. fail() ends it.
  bool tell(const std::string &text, const Completion *end);
  void fail();

private:
  std::mutex mutex;
  std::condition_variable told;
  std::string text;
  Completion theEnd;
  bool hasEnded = false, hasFailed = false, isAbandoned = false;
};

/// The decoding thread.
class DecodeThread {
public:
  DecodeThread(Decoder &decoder, const Tokenizer *tokenizer, size_t waiting);
  ~DecodeThread();

  /// Queues a request. Returns null if the queue is full or decoding has failed.
  std::shared_ptr<Answer> ask(Request request);
  /// Returns the error that ended decoding; null if there is none.
  std::exception_ptr failure();

private:
  struct Job {
    Request request;
    std::shared_ptr<Answer> answer;
  };

  void loop();
  /// Moves requests from the queue to the generator while they fit. Returns false at the end.
  bool admit(Generator &generator);

  Decoder &decoder;
  std::unique_ptr<Tokenizer> tokenizer; ///< used by the decoding thread only
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
