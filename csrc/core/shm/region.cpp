#include "shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"

namespace giant {
namespace {

std::string mebibytes(size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

[[noreturn]] void refuse(size_t bytes, const std::string& why) {
  throw PeerError("no shared memory for a group: " + mebibytes(bytes) + " are needed, " + why);
}

/// What the system can give without swapping, in bytes.
size_t available() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    size_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return SIZE_MAX;
}

}  // namespace

Region Region::make(size_t bytes) {
  // The kernel would rather kill a process than say no to a request beyond what there is.
  const size_t left = available();
  if (bytes > left) refuse(bytes, "and " + mebibytes(left) + " are left");
  Fd fd(memfd_create("giant", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) refuse(bytes, std::string("and memfd_create says: ") + std::strerror(errno));
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    refuse(bytes, std::string("and ftruncate says: ") + std::strerror(errno));
  const int code = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (code != 0) refuse(bytes, std::string("and the system says: ") + std::strerror(code));
  // Nobody can take the memory from under those who map it.
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return Region(std::move(fd), bytes);
}

Region Region::map(Fd fd, size_t bytes) {
  struct stat about {};
  if (fstat(fd.get(), &about) != 0 || static_cast<size_t>(about.st_size) < bytes)
    throw PeerError("the shared memory of a group is smaller than agreed");
  return Region(std::move(fd), bytes);
}

Region::Region(Fd fd, size_t bytes) : fd_(std::move(fd)), size_(bytes) {
  void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (found == MAP_FAILED) refuse(bytes, std::string("and mmap says: ") + std::strerror(errno));
  data_ = static_cast<uint8_t*>(found);
}

Region::Region(Region&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace giant
