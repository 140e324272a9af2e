#include "p2p/writer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/copy.h"

namespace giant::p2p {
namespace {

constexpr size_t kPiecesAtOnce = 32;

}  // namespace

void Writer::Piece::own() {
  if (bytes == 0) return;
  owned = std::make_unique_for_overwrite<char[]>(bytes);
  copy_bytes(owned.get(), payload, bytes);
  payload = owned.get();
}

void Writer::push(const Frame& frame) { pieces_.push_back({.frame = frame}); }

void Writer::push_chunk(const Frame& frame, const char* data) {
  pieces_.push_back({.frame = frame, .payload = data, .bytes = frame.length, .chunk = true});
  has_chunk_ = true;
}

Writer::Status Writer::send(int fd, const Frame& frame, const char* data) {
  Piece piece{.frame = frame, .payload = data, .bytes = frame.length};
  size_t gone = 0;
  if (fd >= 0 && pieces_.empty()) {
    const Piece* const one = &piece;
    const long count = write(fd, &one, 1, 0);
    if (count < 0) return Status::broken;
    gone = count;
    if (gone == piece.size()) return Status::drained;
  }
  piece.own();
  if (pieces_.empty()) sent_ = gone;
  pieces_.push_back(std::move(piece));
  return Status::blocked;
}

Writer::Status Writer::flush(int fd) {
  if (pieces_.empty()) return Status::drained;
  const Piece* batch[kPiecesAtOnce];
  const size_t count = std::min(pieces_.size(), kPiecesAtOnce);
  size_t wanted = 0;
  for (size_t i = 0; i < count; ++i) {
    batch[i] = &pieces_[i];
    wanted += pieces_[i].size();
  }
  wanted -= sent_;
  const long written = write(fd, batch, count, sent_);
  if (written < 0) return Status::broken;
  pop(written);
  if (static_cast<size_t>(written) < wanted) return Status::blocked;
  return pieces_.empty() ? Status::drained : Status::more;
}

void Writer::clear() {
  pieces_.clear();
  sent_ = 0;
  has_chunk_ = false;
}

void Writer::release_chunk() {
  if (!has_chunk_) return;
  has_chunk_ = false;
  const auto piece = std::find_if(pieces_.begin(), pieces_.end(), [](auto& p) { return p.chunk; });
  if (piece != pieces_.begin() || sent_ == 0) {
    pieces_.erase(piece);
    return;
  }
  piece->own();
  piece->chunk = false;
}

// Leaves out the first `skip` bytes. 0 where the stream is full, negative where it is broken.
long Writer::write(int fd, const Piece* const* pieces, size_t count, size_t skip) {
  iovec parts[2 * kPiecesAtOnce];
  size_t used = 0;
  const auto add = [&](const void* data, size_t bytes) {
    const size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (bytes > skipped)
      parts[used++] = {static_cast<char*>(const_cast<void*>(data)) + skipped, bytes - skipped};
  };
  for (size_t i = 0; i < count; ++i) {
    add(&pieces[i]->frame, sizeof(Frame));
    add(pieces[i]->payload, pieces[i]->bytes);
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = used;
  for (;;) {
    const long written = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) return written;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno == EINTR) continue;
    error_ = errno;
    return -1;
  }
}

void Writer::pop(size_t bytes) {
  sent_ += bytes;
  while (!pieces_.empty() && sent_ >= pieces_.front().size()) {
    sent_ -= pieces_.front().size();
    if (pieces_.front().chunk) has_chunk_ = false;
    pieces_.pop_front();
  }
}

}  // namespace giant::p2p
