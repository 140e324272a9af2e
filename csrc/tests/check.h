#pragma once

// A test is a TEST(name) block in any test_*.cpp; CHECK and CHECK_EQ count failures and go on,
// CHECK_THROWS wants an error whose text holds some words. main() is in check.cpp.

#include <exception>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>

namespace check {

struct Registered {
  Registered(const char* name, std::function<void()> body);
};

void fail(const char* file, int line, const std::string& what);

template <class A, class B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream out;
  out << text << ": " << a << " is not " << b;
  fail(file, line, out.str());
}

template <class E, class F>
void throws(F&& body, const std::string& words, const char* file, int line) {
  try {
    body();
  } catch (const E& error) {
    if (std::string(error.what()).find(words) == std::string::npos)
      fail(file, line, std::string("the error says: ") + error.what());
    return;
  }
  fail(file, line, "no error where one with \"" + words + "\" is due");
}

}  // namespace check

#define TEST(name)                                              \
  static void test_##name();                                    \
  static const check::Registered registered_##name{#name, test_##name}; \
  static void test_##name()

#define CHECK(condition) \
  ((condition) ? void() : check::fail(__FILE__, __LINE__, #condition))
#define CHECK_EQ(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_THROWS(error, words, ...) \
  check::throws<error>([&] { __VA_ARGS__; }, words, __FILE__, __LINE__)
