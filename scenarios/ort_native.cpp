// The library that ort_native.py calls: an onnxruntime session through the C API, with the mistakes that params select.
//
// onnxruntime ships no headers in its wheel. Its C API is a table of functions whose order never changes (new ones are
// only added at the end), so this file names the few places in the table that it uses.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

enum Slot {
    kErrorMessage = 2, kCreateEnv = 3, kSessionFromArray = 8, kRun = 9, kCreateOptions = 10, kIntraThreads = 24,
    kInputCount = 30, kOutputCount = 31, kInputName = 36, kOutputName = 37, kTensorWithData = 49, kCpuMemory = 69,
    kFree = 76, kDefaultAllocator = 78, kReleaseEnv = 92, kReleaseStatus = 93, kReleaseMemory = 94, kReleaseSession = 95,
    kReleaseValue = 96, kReleaseOptions = 100, kMetadata = 111, kLookup = 116, kReleaseMetadata = 118, kMetadataKeys = 123
};

constexpr uint32_t kApiVersion = 4;
constexpr int kFloat = 1, kLogErrors = 3, kArenaAllocator = 1, kDefaultMemory = 0;
constexpr int kOwned = 0, kLeaked = 1, kFreedTwice = 2;
constexpr int kLoad = 0, kCreate = 1;

struct ApiBase {
    void* const* (*table)(uint32_t version);
    const char* (*version)();
};

void* const* api;
void *environment, *options, *allocator, *memory;

struct Failure {};

template <typename... Arguments>
void call(Slot slot, Arguments... arguments) {
    void* status = reinterpret_cast<void* (*)(Arguments...)>(api[slot])(arguments...);
    if (status == nullptr) return;
    std::fprintf(stderr, "onnxruntime: %s\n", reinterpret_cast<const char* (*)(void*)>(api[kErrorMessage])(status));
    reinterpret_cast<void (*)(void*)>(api[kReleaseStatus])(status);
    throw Failure{};
}

void release(Slot slot, void* object) { reinterpret_cast<void (*)(void*)>(api[slot])(object); }

void dispose(char* text, int ownership) {
    for (int times = 0; times < (ownership == kFreedTwice ? 2 : ownership == kOwned ? 1 : 0); ++times)
        call(kFree, allocator, static_cast<void*>(text));
}

std::vector<char*> names_of(void* session, Slot count_slot, Slot name_slot) {
    size_t count = 0;
    call(count_slot, static_cast<const void*>(session), &count);
    std::vector<char*> names(count, nullptr);
    for (size_t i = 0; i < count; ++i) call(name_slot, static_cast<const void*>(session), i, allocator, &names[i]);
    return names;
}

// The story's program forgot to free the values; the keys are always freed.
void read_metadata(void* session, int ownership) {
    void* metadata = nullptr;
    call(kMetadata, static_cast<const void*>(session), &metadata);
    char** keys = nullptr;
    int64_t count = 0;
    call(kMetadataKeys, static_cast<const void*>(metadata), allocator, &keys, &count);
    for (int64_t i = 0; i < count; ++i) {
        char* value = nullptr;
        call(kLookup, static_cast<const void*>(metadata), allocator, static_cast<const char*>(keys[i]), &value);
        dispose(value, ownership);
        call(kFree, allocator, static_cast<void*>(keys[i]));
    }
    call(kFree, allocator, static_cast<void*>(keys));
    release(kReleaseMetadata, metadata);
}

void infer(void* session, const std::vector<char*>& inputs, const std::vector<char*>& outputs) {
    float numbers[4] = {1, 2, 3, 4};
    const int64_t shape[1] = {4};
    std::vector<void*> values(inputs.size(), nullptr), results(outputs.size(), nullptr);
    for (auto& value : values)
        call(kTensorWithData, static_cast<const void*>(memory), static_cast<void*>(numbers), sizeof numbers, shape,
             size_t{1}, kFloat, &value);
    call(kRun, session, static_cast<const void*>(nullptr), inputs.data(), values.data(), values.size(), outputs.data(),
         outputs.size(), results.data());
    for (void* value : values) release(kReleaseValue, value);
    for (void* value : results) release(kReleaseValue, value);
}

void use_session(const void* model, size_t size, int names, int metadata, int stage) {
    void* session = nullptr;
    call(kSessionFromArray, static_cast<const void*>(environment), model, size, static_cast<const void*>(options),
         &session);
    std::vector<char*> inputs = names_of(session, kInputCount, kInputName);
    std::vector<char*> outputs = names_of(session, kOutputCount, kOutputName);
    read_metadata(session, metadata);
    if (stage > kCreate) infer(session, inputs, outputs);
    for (char* name : inputs) dispose(name, names);
    for (char* name : outputs) dispose(name, names);
    release(kReleaseSession, session);
}

}  // namespace

// All three return 0, or 1 after printing a line to stderr.

extern "C" int open_library(const char* path) try {
    void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    auto base = library ? reinterpret_cast<const ApiBase* (*)()>(dlsym(library, "OrtGetApiBase")) : nullptr;
    if (base == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    api = base()->table(kApiVersion);
    call(kCreateEnv, kLogErrors, "ort_native", &environment);
    call(kCreateOptions, &options);
    call(kIntraThreads, options, 1);
    call(kDefaultAllocator, &allocator);
    call(kCpuMemory, kArenaAllocator, kDefaultMemory, &memory);
    std::printf("onnxruntime %s\n", base()->version());
    return 0;
} catch (const Failure&) {
    return 1;
}

extern "C" int run_session(const void* model, size_t size, int names, int metadata, int stage) try {
    if (stage > kLoad) use_session(model, size, names, metadata, stage);
    return 0;
} catch (const Failure&) {
    return 1;
}

extern "C" int close_library() {
    release(kReleaseMemory, memory);
    release(kReleaseOptions, options);
    release(kReleaseEnv, environment);
    return 0;
}
