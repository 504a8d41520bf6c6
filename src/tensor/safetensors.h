// The safetensors file format: 8 bytes of header length, a JSON header, then the bytes of the tensors without gaps.
//
// Reading checks everything that a file claims against its real size before anything is allocated by it; an
// Error{corruption} names the file, the tensor and the place. The bytes are copied out of a mapped file, so a file that
// another process cuts short while it is read is outside what can be caught. Source: spec 6.8; the format's own README
// (github safetensors).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "tensor/tensor.h"

namespace tensor {

struct StoredTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes behind the header

  int64_t size_bytes() const { return end - begin; }
};

using Metadata = std::map<std::string, std::string>;

// "F32", "F8_E4M3", ... Error{invalid_argument} for a dtype that the format has no name for.
std::string dtype_name(at::ScalarType dtype);

class SafetensorsFile {
 public:
  // Errors: not_found; corruption as above.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  int64_t size_bytes() const { return static_cast<int64_t>(file_.bytes().size()); }
  uint64_t header_checksum() const;  // base::hash64 of everything before the tensors' bytes

  Tensor read(const StoredTensor& stored) const;  // CPU, own memory
  // Rows [begin, begin + count) of the tensor seen as a list of rows, all dims but the last flattened: [count, C]; of a
  // vector its elements: [count]. CHECKs the range.
  Tensor read_rows(const StoredTensor& stored, int64_t begin, int64_t count) const;

 private:
  void copy_out(const StoredTensor& stored, int64_t offset, Tensor& value) const;

  base::MappedFile file_;
  int64_t data_begin_ = 0;
  Metadata metadata_;
  std::vector<StoredTensor> tensors_;
};

// A folder with model.safetensors.index.json and the files that it names, or with model.safetensors alone. The index
// decides: other files are not looked at. Errors: not_found naming a file that is missing; corruption when index and
// files differ.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  const std::vector<std::string>& names() const { return names_; }  // sorted
  bool has(const std::string& name) const { return places_.contains(name); }
  const StoredTensor& stored(const std::string& name) const;  // CHECKs that it is there
  const std::filesystem::path& file_of(const std::string& name) const;
  const std::vector<SafetensorsFile>& files() const { return files_; }  // by name
  Tensor read(const std::string& name) const;
  Tensor read_rows(const std::string& name, int64_t begin, int64_t count) const;

 private:
  struct Place {
    size_t file, index;
  };
  const Place& place(const std::string& name) const;
  void add(const std::filesystem::path& path);
  void check_against(const std::map<std::string, std::string>& weight_map,
                     const std::filesystem::path& index_path) const;

  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> places_;
  std::vector<std::string> names_;
};

struct TensorToWrite {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;

  int64_t size_bytes() const;
};

// One file, written in pieces: the bytes of its tensors one after the other, in the order of tensors(). It becomes
// visible whole at commit(); without it nothing stays.
class SafetensorsWriter {
 public:
  // In the file tensors stand by falling element size, so that each is aligned; those of one size in the order given.
  // CHECKs that no name comes twice.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                    const Metadata& metadata = {});

  const std::vector<TensorToWrite>& tensors() const { return tensors_; }
  void write(std::span<const std::byte> bytes);
  void commit();  // CHECKs that every byte of every tensor came

 private:
  base::AtomicFile file_;
  std::vector<TensorToWrite> tensors_;
  int64_t missing_bytes_ = 0;
};

// The files of a folder: model.safetensors alone, or model-00001-of-0000n.safetensors of at most max_bytes of tensors
// each (one tensor is never split).
struct Shard {
  std::string file;
  std::vector<TensorToWrite> tensors;
};
std::vector<Shard> cut_shards(const std::vector<TensorToWrite>& tensors, int64_t max_bytes);

// The index of a folder, which makes its shards a checkpoint: written last. Nothing for a single file.
void write_index(const std::filesystem::path& folder, const std::vector<Shard>& shards);

// Gives the value of tensors[index]: of its dtype and shape, on any device, any strides. Called once for each, one at a
// time.
using Fetch = std::function<Tensor(size_t index)>;

// Writes one file, which becomes visible whole.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors, const Fetch& fetch,
                       const Metadata& metadata = {});

// Writes the shards and the index. The folder must exist and hold no safetensors yet: Error{invalid_argument}.
void write_safetensors_folder(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                              const Fetch& fetch, int64_t max_shard_bytes, const Metadata& metadata = {});

}  // namespace tensor
