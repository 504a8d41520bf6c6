// Files that appear whole, and files read with a limit. Errors name the path and what to do. No function follows a
// claim that a file makes about its own size.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace base {

// The whole file. Errors: not_found; invalid_argument when it has more than max_bytes; unavailable when reading fails.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes = int64_t{1} << 34);

// Writes path + ".tmp", fsync, rename to path, fsync of the folder: readers see the old file or the new one, never a
// part.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// Makes the names in a folder durable (fsync of the folder itself).
void sync_folder(const std::filesystem::path& folder);

// Renames a folder into place (the commit point of a checkpoint) and makes the rename durable.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

// Bytes free for this user on the file system that holds path (or its nearest existing parent).
int64_t free_bytes(const std::filesystem::path& path);

// A file mapped read-only. Movable; unmaps at the end. The bytes stay valid for the life of the object, also when the
// file is renamed or deleted. A file truncated by somebody else while it is mapped is outside what can be caught.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), static_cast<size_t>(size_)};
  }
  const std::filesystem::path& path() const { return path_; }
  // Gives the memory of these bytes back: they stay valid and are read from the file again when they are looked at.
  void release(size_t begin, size_t size) const;

 private:
  void* data_ = nullptr;
  int64_t size_ = 0;
  std::filesystem::path path_;
};

// A file that is written in order and becomes visible at commit() (temporary name, fsync, rename, fsync of the folder).
// Without commit() the destructor deletes the temporary file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::string_view bytes);
  void write(std::span<const std::byte> bytes) {
    write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

}  // namespace base
