#include "net/handover.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace giant {
namespace {

constexpr size_t kMost = 200;  // the kernel takes 253 a message

union Control {
  char bytes[CMSG_SPACE(kMost * sizeof(int))];
  cmsghdr alignment;
};

void wait_for(int stream, short events, Deadline deadline) {
  pollfd entry{stream, events, 0};
  if (poll(&entry, 1, deadline.poll_ms(milliseconds(1000))) == 0 && deadline.expired())
    throw TimeoutError("a rank of this host did not answer in time");
}

void send_some(int stream, const int* fds, size_t count, Deadline deadline) {
  char byte = 1;
  iovec part{&byte, 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  while (sendmsg(stream, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EAGAIN && errno != EINTR)
      throw PeerError(std::string("a rank of this host hung up: ") + std::strerror(errno));
    if (errno == EAGAIN) wait_for(stream, POLLOUT, deadline);
  }
}

void receive_some(int stream, std::vector<Fd>& found, Deadline deadline) {
  char byte = 0;
  iovec part{&byte, 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t got = recvmsg(stream, &message, MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EINTR) return;
  if (got < 0 && errno == EAGAIN) return wait_for(stream, POLLIN, deadline);
  if (got <= 0) throw PeerError("a rank of this host hung up");
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(each) + i * sizeof(int), sizeof fd);
      found.emplace_back(fd);
    }
  }
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
