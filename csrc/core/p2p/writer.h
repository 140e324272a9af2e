#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "p2p/frame.h"

namespace giant::p2p {

/// What waits to go out on a stream.
class Writer {
 public:
  enum class Status { drained, blocked, more, broken };

  bool empty() const { return pieces_.empty(); }

  void push(const Frame& frame);
  /// `data` must live until the chunk has gone or is released. One chunk at a time.
  void push_chunk(const Frame& frame, const char* data);
  /// Writes at once what it can where nothing else waits; copies what is left.
  Status send(int fd, const Frame& frame, const char* data);
  /// One write of what waits. `broken`: the stream takes nothing any more; see last_error().
  Status flush(int fd);
  void clear();

  bool has_chunk() const { return has_chunk_; }
  /// The memory of the chunk is not read any more. A chunk of which a part has gone will go whole.
  void release_chunk();

  int last_error() const { return error_; }

 private:
  struct Piece {
    Frame frame;
    const char* payload = nullptr;
    size_t bytes = 0;
    std::unique_ptr<char[]> owned{};
    bool chunk = false;

    size_t size() const { return sizeof(Frame) + bytes; }
    void own();
  };

  long write(int fd, const Piece* const* pieces, size_t count, size_t skip);
  void pop(size_t bytes);

  std::deque<Piece> pieces_;
  size_t sent_ = 0;  // of the first piece
  bool has_chunk_ = false;
  int error_ = 0;
};

}  // namespace giant::p2p
