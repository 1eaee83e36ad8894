#pragma once

#include <filesystem>
#include <vector>

// Where NVIDIA's PyPI packages and CUDA toolkits of this machine keep what they install. Python's
// folders are the site-packages of $VIRTUAL_ENV, of the python3 in PATH, of the user and of the
// system, the newest Python first. Each folder exists and comes once.
namespace lapidary {

/// Libraries: in packages, then in $CUDA_HOME and /usr/local/cuda.
std::vector<std::filesystem::path> cuda_library_folders();

/// Programs, after those in PATH: in $CUDA_HOME and /usr/local/cuda, then in NVIDIA's packages,
/// then in Triton's.
std::vector<std::filesystem::path> cuda_program_folders();

}  // namespace lapidary
