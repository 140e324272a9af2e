#include "p2p/reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace giant::p2p {
namespace {

constexpr size_t kWasteBytes = 64 * 1024;

}  // namespace

void Reader::expect(char* target, size_t bytes) {
  target_ = target;
  rest_ = bytes;
  expecting_ = true;
}

Reader::Status Reader::read(int fd, Handler& handler) {
  if (!staging_) staging_ = std::make_unique<char[]>(staging_bytes_);
  size_t total = 0;
  while (total < kBudget) {
    size_t wanted = 0;
    const long count = fill(fd, &wanted);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      error_ = count < 0 ? errno : 0;
      return Status::ended;
    }
    untouched_ = false;
    total += count;
    advance(count, handler);
    if (!parse(handler)) return Status::stopped;
    // A short read means that the stream is empty for now: no need to ask once more.
    if (static_cast<size_t>(count) < wanted) break;
  }
  return total > 0 ? Status::progress : Status::idle;
}

// What is left in the staging buffer here is less than a frame, and nothing if a payload is due.
long Reader::fill(int fd, size_t* wanted) {
  std::memmove(staging_.get(), staging_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  char waste[kWasteBytes];
  iovec parts[2];
  int count = 0;
  const size_t first = target_ ? rest_ : std::min(rest_, kWasteBytes);
  if (first > 0) parts[count++] = {target_ ? target_ : waste, first};
  if (first == rest_) parts[count++] = {staging_.get() + end_, staging_bytes_ - end_};
  for (int i = 0; i < count; ++i) *wanted += parts[i].iov_len;
  return ::readv(fd, parts, count);
}

void Reader::advance(size_t bytes, Handler& handler) {
  const size_t direct = std::min(bytes, rest_);
  rest_ -= direct;
  if (target_) target_ += direct;
  end_ += bytes - direct;
  if (expecting_ && rest_ == 0) {
    expecting_ = false;
    handler.payload();
  }
}

bool Reader::parse(Handler& handler) {
  while (rest_ == 0 && end_ - begin_ >= sizeof(Frame)) {
    Frame frame;
    std::memcpy(&frame, staging_.get() + begin_, sizeof frame);
    begin_ += sizeof frame;
    check_frame(frame, way_);
    if (!handler.frame(frame)) return false;
    if (!expecting_) continue;
    const size_t here = std::min(rest_, end_ - begin_);
    if (target_ && here > 0) {
      std::memcpy(target_, staging_.get() + begin_, here);
      target_ += here;
    }
    begin_ += here;
    rest_ -= here;
    if (rest_ == 0) {
      expecting_ = false;
      handler.payload();
    }
  }
  return true;
}

}  // namespace giant::p2p
