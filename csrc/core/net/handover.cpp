#include "net/handover.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "net/socket.h"

namespace giant {
namespace {

constexpr size_t kMost = 200;  // the kernel takes 253 a message
constexpr char kByte = 1;      // descriptors travel with at least one

/// A message of one byte, with room for descriptors.
struct Parcel {
  char byte = kByte;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kMost * sizeof(int))]{};
  msghdr message{};

  explicit Parcel(size_t count) {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  }
  Parcel(const Parcel&) = delete;
};

void wait_or_throw(int stream, short events, Deadline deadline) {
  if (!wait_for(stream, events, deadline))
    throw TimeoutError("a rank of this host did not take or hand over descriptors in time");
}

void send_some(int stream, const int* fds, size_t count, Deadline deadline) {
  Parcel parcel(count);
  cmsghdr* const header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  while (sendmsg(stream, &parcel.message, MSG_NOSIGNAL) < 0) {
    if (errno == EAGAIN)
      wait_or_throw(stream, POLLOUT, deadline);
    else if (errno == EPIPE || errno == ECONNRESET)
      throw PeerError("a rank of this host hung up");
    else if (errno != EINTR)
      throw PeerError(std::string("cannot hand over descriptors: ") + std::strerror(errno));
  }
}

/// Owns them at once, whatever is wrong with the rest.
size_t keep(const cmsghdr& header, std::vector<Fd>& found) {
  if (header.cmsg_level != SOL_SOCKET || header.cmsg_type != SCM_RIGHTS) return 0;
  const size_t count = (header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (size_t i = 0; i < count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(&header) + i * sizeof(int), sizeof fd);
    found.emplace_back(fd);
  }
  return count;
}

void receive_some(int stream, std::vector<Fd>& found, Deadline deadline) {
  Parcel parcel(kMost);
  ssize_t got = -1;
  while ((got = recvmsg(stream, &parcel.message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EAGAIN)
      wait_or_throw(stream, POLLIN, deadline);
    else if (errno != EINTR)
      throw PeerError(std::string("a rank of this host hung up: ") + std::strerror(errno));
  }
  if (got == 0) throw PeerError("a rank of this host hung up");
  size_t count = 0;
  for (cmsghdr* each = CMSG_FIRSTHDR(&parcel.message); each != nullptr;
       each = CMSG_NXTHDR(&parcel.message, each))
    count += keep(*each, found);
  if ((parcel.message.msg_flags & MSG_CTRUNC) != 0)
    throw PeerError("descriptors were lost on the way: this process may have too many (ulimit -n)");
  if (count == 0 || parcel.byte != kByte)
    throw PeerError("a rank of this host sent something else than descriptors");
}

}  // namespace

void send_fds(int stream, const std::vector<int>& fds, Deadline deadline) {
  for (size_t at = 0; at < fds.size(); at += kMost)
    send_some(stream, fds.data() + at, std::min(kMost, fds.size() - at), deadline);
}

std::vector<Fd> receive_fds(int stream, size_t count, Deadline deadline) {
  std::vector<Fd> found;
  while (found.size() < count) receive_some(stream, found, deadline);
  if (found.size() > count) throw PeerError("more descriptors came than were due");
  return found;
}

}  // namespace giant
