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

/// The output of a request with one or several choices. Written by the decoding thread, read by one other thread.
class Answer {
public:
  /// News of one choice. `news.end` is null; at the end of a choice, `isEnd` is true and ends() has its completion.
  struct Piece {
    size_t choice = 0;
    News news;
    bool isEnd = false;
  };

  explicit Answer(size_t choices) : theEnds(choices), left(choices) {}
  virtual ~Answer() = default;

  /// Returns all pieces since the last call; nothing if decoding failed.
  std::optional<std::vector<Piece>> take();
  /// Returns whether take() has returned the end of every choice.
  bool isOver();
  /// Returns the completions of the choices. Requires isOver(), or the end of the choice that is read.
  const std::vector<Completion> &ends() const { return theEnds; }

  /// Returns whether nobody waits for the output. Called by the decoding thread, which then drops the request.
  virtual bool isAbandoned() const = 0;

  /// Called by the decoding thread: adds news, or ends the answer because decoding failed.
  void tell(size_t choice, News news);
  void fail();

private:
  /// Called by the decoding thread when take() has news, once until the next take(). Must not block.
  virtual void wake() = 0;

  std::mutex mutex;
  std::vector<Piece> pieces;
  std::vector<Completion> theEnds; ///< an element is written before its end is told, and not changed afterwards
  size_t left;                     ///< choices without an end
  bool hasFailed = false;
};

/// The decoding thread.
class DecodeThread {
public:
  DecodeThread(Decoder &decoder, const Tokenizer *tokenizer, size_t waiting);
  ~DecodeThread();

  /// Queues the choices of a request. Returns false if the queue is full or decoding has failed. A queue that is not
  /// full takes all choices of a request.
  bool ask(const std::shared_ptr<Answer> &answer, std::vector<Request> choices);
  /// Returns the error that ended decoding; null if there is none.
  std::exception_ptr failure();

  /// The number of texts that are decoded, and that wait.
  struct Load {
    size_t running = 0, waiting = 0;
  };
  Load load();

private:
  struct Job {
    Request request;
    std::shared_ptr<Answer> answer;
    size_t choice;
  };

  void loop();
  /// Moves requests from the queue to the generator while they fit. Returns false at the end.
  bool admit(Generator &generator);
  void dropAbandoned();

  Decoder &decoder;
  std::unique_ptr<Tokenizer> tokenizer; ///< used by the decoding thread only
  const size_t waiting;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  size_t active = 0; ///< texts in the generator
  std::vector<std::weak_ptr<Answer>> running;
  bool isEnding = false;
  std::exception_ptr fault;
  std::jthread thread;
};

} // namespace espalier::rt
