// Reading tensors out of mapped files; writing files and shards in order.
#include "tensor/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/hash.h"
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

// Indices of the tensors in the order of their bytes.
std::vector<size_t> file_order(const std::vector<TensorToWrite>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return element_size(tensors[a]) > element_size(tensors[b]); });
  return order;
}

std::vector<TensorToWrite> in_file_order(const std::vector<TensorToWrite>& tensors) {
  std::vector<TensorToWrite> ordered;
  ordered.reserve(tensors.size());
  for (const size_t i : file_order(tensors)) ordered.push_back(tensors[i]);
  return ordered;
}

// The value comes in the order of the file: fetch is asked for its index among the tensors as they were given.
void write_values(SafetensorsWriter& writer, const std::vector<TensorToWrite>& tensors, const Fetch& fetch) {
  for (const size_t i : file_order(tensors)) {
    const Tensor value = fetch(i);
    CHECK(value.scalar_type() == tensors[i].dtype && value.sizes().vec() == tensors[i].shape,
          "{}: was announced with another dtype or shape", tensors[i].name);
    const Tensor host = to_host(value);
    writer.write(bytes_of(host));
  }
}

int64_t last_dim(const StoredTensor& stored) { return stored.shape.size() < 2 ? 1 : stored.shape.back(); }

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

uint64_t SafetensorsFile::header_checksum() const {
  return base::hash64(file_.bytes().first(static_cast<size_t>(data_begin_)));
}

// Page by page, so that the file's pages don't stand in memory beside the whole copy.
void SafetensorsFile::copy_out(const StoredTensor& stored, int64_t offset, Tensor& value) const {
  constexpr size_t kPiece = size_t{4} << 20;
  const auto begin = static_cast<size_t>(data_begin_ + stored.begin + offset), size = value.nbytes();
  auto* const to = static_cast<std::byte*>(value.mutable_data_ptr());
  for (size_t at = 0; at < size; at += kPiece) {
    const size_t count = std::min(kPiece, size - at);
    std::memcpy(to + at, file_.bytes().data() + begin + at, count);
    file_.release(begin + at, count);
  }
}

Tensor SafetensorsFile::read(const StoredTensor& stored) const {
  Tensor value = at::empty(stored.shape, at::TensorOptions(stored.dtype));
  CHECK(static_cast<int64_t>(value.nbytes()) == stored.size_bytes());
  copy_out(stored, 0, value);
  return value;
}

Tensor SafetensorsFile::read_rows(const StoredTensor& stored, int64_t begin, int64_t count) const {
  const int64_t columns = last_dim(stored);
  const int64_t row_bytes = columns * static_cast<int64_t>(c10::elementSize(stored.dtype));
  CHECK(begin >= 0 && count >= 0 && (begin + count) * row_bytes <= stored.size_bytes(), "rows {} to {} of {}", begin,
        begin + count, stored.name);
  const std::vector<int64_t> shape =
      stored.shape.size() < 2 ? std::vector<int64_t>{count} : std::vector<int64_t>{count, columns};
  Tensor value = at::empty(shape, at::TensorOptions(stored.dtype));
  copy_out(stored, begin * row_bytes, value);
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

Tensor SafetensorsFolder::read_rows(const std::string& name, int64_t begin, int64_t count) const {
  const Place& at = place(name);
  return files_[at.file].read_rows(files_[at.file].tensors()[at.index], begin, count);
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorToWrite> tensors, const Metadata& metadata)
    : file_(path), tensors_(in_file_order(tensors)) {
  const std::string header = write_header(tensors_, metadata);
  const uint64_t length = header.size();
  file_.write(std::string_view(reinterpret_cast<const char*>(&length), sizeof length));
  file_.write(header);
  for (const TensorToWrite& tensor : tensors_) missing_bytes_ += tensor.size_bytes();
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  missing_bytes_ -= static_cast<int64_t>(bytes.size());
  CHECK(missing_bytes_ >= 0, "more bytes than the tensors have");
  file_.write(bytes);
}

void SafetensorsWriter::commit() {
  CHECK(missing_bytes_ == 0, "{} bytes of the tensors are missing", missing_bytes_);
  file_.commit();
}

std::vector<Shard> cut_shards(const std::vector<TensorToWrite>& tensors, int64_t max_bytes) {
  std::vector<Shard> shards(1);
  int64_t bytes = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (!shards.back().tensors.empty() && bytes + tensor.size_bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.size_bytes();
    shards.back().tensors.push_back(tensor);
  }
  shards.front().file = kSingleName;
  for (size_t i = 0; i < shards.size() && shards.size() > 1; ++i) {
    shards[i].file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

void write_index(const fs::path& folder, const std::vector<Shard>& shards) {
  if (shards.size() < 2) return;
  JsonMap index = {{"metadata", {{"total_size", 0}}}, {"weight_map", JsonMap::object()}};
  int64_t total = 0;
  for (const Shard& shard : shards) {
    for (const TensorToWrite& tensor : shard.tensors) {
      index["weight_map"][tensor.name] = shard.file;
      total += tensor.size_bytes();
    }
  }
  index["metadata"]["total_size"] = total;
  base::write_file_atomic(folder / kIndexName, index.dump(2) + "\n");
}

void write_safetensors(const fs::path& path, const std::vector<TensorToWrite>& tensors, const Fetch& fetch,
                       const Metadata& metadata) {
  SafetensorsWriter writer(path, tensors, metadata);
  write_values(writer, tensors, fetch);
  writer.commit();
}

void write_safetensors_folder(const fs::path& folder, const std::vector<TensorToWrite>& tensors, const Fetch& fetch,
                              int64_t max_shard_bytes, const Metadata& metadata) {
  check_no_safetensors(folder);
  const std::vector<Shard> shards = cut_shards(tensors, max_shard_bytes);
  size_t first = 0;
  for (const Shard& shard : shards) {
    write_safetensors(
        folder / shard.file, shard.tensors, [&](size_t i) { return fetch(first + i); }, metadata);
    first += shard.tensors.size();
  }
  write_index(folder, shards);
}

}  // namespace tensor
