// Reading tensors out of mapped files; writing files and shards in order.
#include "tensor/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "tensor/bytes.h"
#include "tensor/safetensors_header.h"

namespace tensor {
namespace fs = std::filesystem;
namespace {

using base::Code;
using base::fail;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr int64_t kMaxIndexBytes = int64_t{1} << 28;
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

// The length of the header, checked against the size of the file.
uint64_t header_length(std::span<const std::byte> bytes, const std::string& where) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) {
    fail(Code::corruption, "{}: has {} bytes; a safetensors file begins with 8 bytes of header length", where,
         bytes.size());
  }
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeaderBytes) {
    fail(Code::corruption,
         "{}: the first 8 bytes claim a header of {} bytes, at most {} are allowed: not a safetensors file", where,
         length, kMaxHeaderBytes);
  }
  if (length > bytes.size() - sizeof length) {
    fail(Code::corruption, "{}: claims a header of {} bytes, but only {} follow (cut short?)", where, length,
         bytes.size() - sizeof length);
  }
  return length;
}

int64_t element_size(const TensorToWrite& tensor) { return static_cast<int64_t>(c10::elementSize(tensor.dtype)); }

void write_bytes(base::AtomicFile& file, const TensorToWrite& wanted, const Tensor& value) {
  CHECK(value.scalar_type() == wanted.dtype && value.sizes().vec() == wanted.shape,
        "{}: was announced with another dtype or shape", wanted.name);
  const Tensor host = to_host(value);
  file.write(bytes_of(host));
}

// Runs of tensors, each of at most max_bytes or one tensor long.
std::vector<std::pair<size_t, size_t>> cut_shards(const std::vector<TensorToWrite>& tensors, int64_t max_bytes) {
  std::vector<std::pair<size_t, size_t>> shards;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t size = tensors[i].size_bytes();
    if (shards.empty() || bytes + size > max_bytes) {
      shards.emplace_back(i, i);
      bytes = 0;
    }
    bytes += size;
    shards.back().second = i + 1;
  }
  return shards;
}

void check_no_safetensors(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == kIndexName || entry.path().extension() == ".safetensors") {
      fail(Code::invalid_argument, "{}: holds {} already; choose another folder, or remove it", folder.string(), name);
    }
  }
}

}  // namespace

int64_t TensorToWrite::size_bytes() const {
  int64_t size = element_size(*this);
  for (const int64_t dim : shape) size *= dim;
  return size;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  const std::string where = path.string();
  const uint64_t length = header_length(bytes, where);
  data_begin_ = static_cast<int64_t>(sizeof length + length);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
  Header header = parse_header(text, static_cast<int64_t>(bytes.size()) - data_begin_, where);
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
}

Tensor SafetensorsFile::read(const StoredTensor& stored) const {
  Tensor value = at::empty(stored.shape, at::TensorOptions(stored.dtype));
  const std::span<const std::byte> bytes =
      file_.bytes().subspan(static_cast<size_t>(data_begin_ + stored.begin), static_cast<size_t>(stored.size_bytes()));
  CHECK(value.nbytes() == bytes.size());
  if (!bytes.empty()) std::memcpy(value.mutable_data_ptr(), bytes.data(), bytes.size());
  return value;
}

SafetensorsFolder::SafetensorsFolder(const fs::path& folder) {
  const fs::path index_path = folder / kIndexName;
  if (fs::exists(index_path)) {
    const auto weight_map = parse_index(base::read_file(index_path, kMaxIndexBytes), index_path.string());
    std::set<std::string> file_names;
    for (const auto& [name, file] : weight_map) file_names.insert(file);
    for (const std::string& file : file_names) {
      if (!fs::exists(folder / file)) {
        fail(Code::not_found,
             "{}: names {}, which is not in the folder: the checkpoint is incomplete, copy the file there",
             index_path.string(), file);
      }
      add(folder / file);
    }
    check_against(weight_map, index_path);
  } else if (fs::exists(folder / kSingleName)) {
    add(folder / kSingleName);
  } else {
    fail(Code::not_found, "{}: has neither {} nor {}: not a checkpoint folder", folder.string(), kIndexName,
         kSingleName);
  }
  std::sort(names_.begin(), names_.end());
}

void SafetensorsFolder::add(const fs::path& path) {
  const SafetensorsFile& file = files_.emplace_back(path);
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const std::string& name = file.tensors()[i].name;
    const auto [at, is_new] = places_.emplace(name, Place{files_.size() - 1, i});
    if (!is_new) {
      fail(Code::corruption, "{}: tensor {} is also in {}", path.string(), quote_name(name),
           files_[at->second.file].path().string());
    }
    names_.push_back(name);
  }
}

void SafetensorsFolder::check_against(const std::map<std::string, std::string>& weight_map,
                                      const fs::path& index_path) const {
  for (const auto& [name, file] : weight_map) {
    const auto at = places_.find(name);
    if (at == places_.end() || files_[at->second.file].path().filename() != file) {
      fail(Code::corruption, "{}: says that tensor {} is in {}, where it is not", index_path.string(), quote_name(name),
           file);
    }
  }
  for (const auto& [name, place] : places_) {
    if (!weight_map.contains(name)) {
      fail(Code::corruption,
           "{}: does not list tensor {}, which {} holds: index and files belong to different checkpoints",
           index_path.string(), quote_name(name), files_[place.file].path().filename().string());
    }
  }
}

const SafetensorsFolder::Place& SafetensorsFolder::place(const std::string& name) const {
  const auto at = places_.find(name);
  CHECK(at != places_.end(), "tensor {} is not in the folder", name);
  return at->second;
}

const StoredTensor& SafetensorsFolder::stored(const std::string& name) const {
  const Place& at = place(name);
  return files_[at.file].tensors()[at.index];
}

const fs::path& SafetensorsFolder::file_of(const std::string& name) const { return files_[place(name).file].path(); }

Tensor SafetensorsFolder::read(const std::string& name) const {
  const Place& at = place(name);
  return files_[at.file].read(files_[at.file].tensors()[at.index]);
}

void write_safetensors(const fs::path& path, const std::vector<TensorToWrite>& tensors, const Fetch& fetch,
                       const Metadata& metadata) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return element_size(tensors[a]) > element_size(tensors[b]); });
  std::vector<TensorToWrite> ordered;
  for (const size_t i : order) ordered.push_back(tensors[i]);
  const std::string header = write_header(ordered, metadata);
  const uint64_t length = header.size();
  base::AtomicFile file(path);
  file.write(std::string_view(reinterpret_cast<const char*>(&length), sizeof length));
  file.write(header);
  for (const size_t i : order) write_bytes(file, tensors[i], fetch(i));
  file.commit();
}

void write_safetensors_folder(const fs::path& folder, const std::vector<TensorToWrite>& tensors, const Fetch& fetch,
                              int64_t max_shard_bytes, const Metadata& metadata) {
  check_no_safetensors(folder);
  const auto shards = cut_shards(tensors, max_shard_bytes);
  if (shards.size() <= 1) return write_safetensors(folder / kSingleName, tensors, fetch, metadata);
  JsonMap index = {{"metadata", {{"total_size", 0}}}, {"weight_map", JsonMap::object()}};
  int64_t total = 0;
  for (size_t s = 0; s < shards.size(); ++s) {
    const auto [begin, end] = shards[s];
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    const std::vector<TensorToWrite> part(tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                                          tensors.begin() + static_cast<std::ptrdiff_t>(end));
    write_safetensors(
        folder / file, part, [&, first = begin](size_t i) { return fetch(first + i); }, metadata);
    for (const TensorToWrite& tensor : part) {
      index["weight_map"][tensor.name] = file;
      total += tensor.size_bytes();
    }
  }
  index["metadata"]["total_size"] = total;
  base::write_file_atomic(folder / kIndexName, index.dump(2) + "\n");
}

}  // namespace tensor
