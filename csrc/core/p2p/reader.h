#pragma once

#include <cstddef>
#include <memory>

#include "p2p/frame.h"

namespace giant::p2p {

/// Takes the frames of a stream apart. Payloads go straight where they belong.
class Reader {
 public:
  /// Who uses what is read. Both may throw; the stream is then of no more use.
  class Handler {
   public:
    virtual ~Handler() = default;
    /// A checked frame. Calls Reader::expect where a payload follows. False ends reading for good.
    virtual bool frame(const Frame& frame) = 0;
    /// The expected payload is complete.
    virtual void payload() = 0;
  };

  enum class Status { idle, progress, stopped, ended };

  Reader(Way way, size_t staging_bytes) : way_(way), staging_bytes_(staging_bytes) {}

  /// Reads what there is, about kBudget at most. Never blocks. `stopped`: the handler said so;
  /// `ended`: the stream did, with last_error() if it broke.
  Status read(int fd, Handler& handler);

  /// The next `bytes` of the stream go to `target`, or nowhere if it is null.
  void expect(char* target, size_t bytes);
  /// The rest of the payload goes nowhere: its target is no more.
  void discard() { target_ = nullptr; }

  int last_error() const { return error_; }
  bool untouched() const { return untouched_; }

 private:
  static constexpr size_t kBudget = 1 << 20;

  long fill(int fd, size_t* wanted);
  void advance(size_t bytes, Handler& handler);
  bool parse(Handler& handler);

  Way way_;
  size_t staging_bytes_;
  std::unique_ptr<char[]> staging_;
  size_t begin_ = 0;
  size_t end_ = 0;
  char* target_ = nullptr;
  size_t rest_ = 0;
  bool expecting_ = false;
  bool untouched_ = true;
  int error_ = 0;
};

}  // namespace giant::p2p
