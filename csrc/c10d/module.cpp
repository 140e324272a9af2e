#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "backend.h"
#include "reduce/reduce.h"

namespace py = pybind11;
using giant::Compression;
using giant::pg::Entry;
using giant::pg::GiantBackend;
using GiantOptions = GiantBackend::GiantOptions;

namespace {

Compression compression_of(const std::string& name) {
  if (name == "none") return Compression::none;
  if (name == "bf16") return Compression::bf16;
  if (name == "int8") return Compression::int8;
  throw py::value_error("compression is `none`, `bf16` or `int8`, not `" + name + "`");
}

const char* name_of(Compression compression) {
  switch (compression) {
    case Compression::none: return "none";
    case Compression::bf16: return "bf16";
    case Compression::int8: return "int8";
  }
  return "?";
}

py::dict as_dict(const Entry& entry) {
  py::dict all;
  all["number"] = entry.number;
  all["operation"] = entry.operation;
  all["dtype"] = entry.dtype;
  all["bytes"] = entry.bytes;
  all["peer"] = entry.peer < 0 ? py::object(py::none()) : py::object(py::int_(entry.peer));
  all["state"] = name_of(entry.state);
  all["issued"] = entry.issued;
  all["started"] = entry.started;
  all["ended"] = entry.ended;
  return all;
}

py::list records(const GiantBackend& backend) {
  py::list all;
  for (const Entry& entry : backend.record().entries()) all.append(as_dict(entry));
  return all;
}

py::dict counters(const GiantBackend& backend) {
  const giant::Counters found = backend.counters();
  py::dict all;
  all["calls"] = found.calls;
  all["bytes_sent_between_hosts"] = found.bytes_sent_between_hosts;
  all["bytes_received_between_hosts"] = found.bytes_received_between_hosts;
  all["seconds_waiting"] = static_cast<double>(found.nanoseconds_waiting) * 1e-9;
  return all;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("instruction_set", &giant::instruction_set, "The kernels in use, \"avx2\" for example.");

  py::class_<GiantOptions, c10d::Backend::Options, c10::intrusive_ptr<GiantOptions>>(module, "Options")
      .def(py::init([](std::chrono::milliseconds timeout, const std::string& compression) {
             return c10::make_intrusive<GiantOptions>(timeout, compression_of(compression));
           }),
           py::arg("timeout") = kBackendDefaultTimeout, py::arg("compression") = "none")
      .def_property(
          "compression", [](const GiantOptions& options) { return name_of(options.compression); },
          [](GiantOptions& options, const std::string& name) {
            options.compression = compression_of(name);
          });

  py::class_<GiantBackend, c10d::Backend, c10::intrusive_ptr<GiantBackend>>(module, "GiantBackend")
      .def(py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                       const c10::intrusive_ptr<GiantOptions>& options) {
             return c10::make_intrusive<GiantBackend>(store, rank, size, options);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &GiantBackend::options)
      .def("records", &records, "The last operations, oldest first.")
      .def("dump", [](const GiantBackend& backend) { return backend.record().text(); })
      .def("counters", &counters)
      .def("hosts", [](const GiantBackend& backend) {
        const giant::Topology& topology = backend.topology();
        std::vector<std::vector<int>> hosts;
        for (int host = 0; host < topology.num_hosts(); ++host) hosts.push_back(topology.ranks_of(host));
        return hosts;
      }, "The ranks of each host.");
}
