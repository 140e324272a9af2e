#include "check.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

namespace check {
namespace {

struct Case {
  const char* name;
  std::function<void()> body;
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

std::atomic<int> failures{0};
std::mutex printing;

}  // namespace

Registered::Registered(const char* name, std::function<void()> body) {
  cases().push_back({name, std::move(body)});
}

void fail(const char* file, int line, const std::string& what) {
  const std::lock_guard<std::mutex> lock(printing);
  ++failures;
  std::cerr << file << ":" << line << ": " << what << std::endl;
}

}  // namespace check

/// Runs the tests whose names hold the first argument, or all.
int main(int count, char** words) {
  int ran = 0;
  for (const auto& each : check::cases()) {
    if (count > 1 && std::strstr(each.name, words[1]) == nullptr) continue;
    ++ran;
    const int before = check::failures;
    try {
      each.body();
    } catch (const std::exception& error) {
      check::fail(each.name, 0, std::string("threw: ") + error.what());
    }
    std::cout << (check::failures == before ? "ok    " : "FAIL  ") << each.name << std::endl;
  }
  std::cout << ran << " tests, " << check::failures << " failures" << std::endl;
  return ran == 0 || check::failures > 0;
}
