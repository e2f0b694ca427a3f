// leveldb KEYS THREADS: threads fill a database in memory, which is closed, recovered from its log, compacted in
// its background thread, then read and scanned. Prints a checksum of all keys and values.
//
// Threads take turns, and background work is handed over through plain pthread calls: so each thread makes the
// same calls in every run, however the kernel schedules it.
#include <pthread.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include "db/db_impl.h"
#include "helpers/memenv/memenv.h"
#include "leveldb/db.h"
#include "leveldb/env.h"
#include "leveldb/filter_policy.h"
#include "leveldb/write_batch.h"

namespace {

constexpr int kThreadsMax = 16;

// A lock and a condition that make no call which is traced.
struct Gate {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
};

// An environment in memory whose background thread belongs to us.
class OneWorkerEnv : public leveldb::EnvWrapper {
   public:
    explicit OneWorkerEnv(leveldb::Env* files) : EnvWrapper(files) {
        if (pthread_create(&worker_, nullptr, Run, this)) abort();
        pthread_setname_np(worker_, "compaction");
    }
    ~OneWorkerEnv() override {
        pthread_mutex_lock(&gate_.mutex);
        is_ending_ = true;
        pthread_cond_signal(&gate_.changed);
        pthread_mutex_unlock(&gate_.mutex);
        pthread_join(worker_, nullptr);
    }
    void Schedule(void (*function)(void*), void* argument) override {
        pthread_mutex_lock(&gate_.mutex);
        // The database schedules its next work only when the last one is done.
        if (function_) abort();
        function_ = function;
        argument_ = argument;
        pthread_cond_signal(&gate_.changed);
        pthread_mutex_unlock(&gate_.mutex);
    }

   private:
    static void* Run(void* self_pointer) {
        OneWorkerEnv* self = static_cast<OneWorkerEnv*>(self_pointer);
        pthread_mutex_lock(&self->gate_.mutex);
        for (;;) {
            while (!self->function_ && !self->is_ending_) pthread_cond_wait(&self->gate_.changed, &self->gate_.mutex);
            if (!self->function_) break;
            void (*function)(void*) = self->function_;
            self->function_ = nullptr;
            pthread_mutex_unlock(&self->gate_.mutex);
            function(self->argument_);
            pthread_mutex_lock(&self->gate_.mutex);
        }
        pthread_mutex_unlock(&self->gate_.mutex);
        return nullptr;
    }

    Gate gate_;
    pthread_t worker_;
    void (*function_)(void*) = nullptr;
    void* argument_ = nullptr;
    bool is_ending_ = false;
};

leveldb::DB* db;
int keys, threads;
Gate turns;
int turn;

void Must(const leveldb::Status& status) {
    if (status.ok()) return;
    fprintf(stderr, "leveldb: %s\n", status.ToString().c_str());
    exit(1);
}

struct Job {
    pthread_t thread;
    int id;
    uint64_t random, sum;
    void (*step)(Job*);

    unsigned Next() {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return static_cast<unsigned>(random >> 11) % (2 * keys);
    }
    void Add(const leveldb::Slice& text) {
        for (size_t i = 0; i < text.size(); i++) sum = (sum ^ static_cast<unsigned char>(text[i])) * 1099511628211u;
    }
};

std::string Key(unsigned number) {
    char key[32];
    snprintf(key, sizeof key, "%016u", number);
    return key;
}

void Write(Job* job) {
    leveldb::WriteBatch batch;
    for (int k = 0; k < 4; k++) batch.Put(Key(job->Next()), std::string(60, static_cast<char>('a' + k + job->id)));
    batch.Delete(Key(job->Next()));
    Must(db->Write(leveldb::WriteOptions(), &batch));
}

void Read(Job* job) {
    std::string value;
    leveldb::Status status = db->Get(leveldb::ReadOptions(), Key(job->Next()), &value);
    if (status.IsNotFound()) return;
    Must(status);
    job->Add(value);
}

void* Work(void* argument) {
    Job* job = static_cast<Job*>(argument);
    for (int i = 0; i < keys / threads; i++) {
        pthread_mutex_lock(&turns.mutex);
        while (turn != job->id) pthread_cond_wait(&turns.changed, &turns.mutex);
        job->step(job);
        turn = (turn + 1) % threads;
        pthread_cond_broadcast(&turns.changed);
        pthread_mutex_unlock(&turns.mutex);
    }
    return nullptr;
}

void InThreads(const char* what, void (*step)(Job*)) {
    static Job jobs[kThreadsMax];
    for (int i = 0; i < threads; i++) {
        jobs[i] = Job{pthread_t(), i, 88172645463325252u + static_cast<uint64_t>(i), 0, step};
        if (pthread_create(&jobs[i].thread, nullptr, Work, &jobs[i])) abort();
        char name[16];
        snprintf(name, sizeof name, "%s-%d", what, i);
        pthread_setname_np(jobs[i].thread, name);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(jobs[i].thread, nullptr);
        printf("%s-%d: %016llx\n", what, i, static_cast<unsigned long long>(jobs[i].sum));
    }
}

// Levels one after the other: each has work for the background thread once at a time.
void Compact() {
    for (int level = 0; level < 3; level++) static_cast<leveldb::DBImpl*>(db)->TEST_CompactRange(level, nullptr, nullptr);
}

void Scan() {
    Job all{};
    int count = 0;
    std::unique_ptr<leveldb::Iterator> at(db->NewIterator(leveldb::ReadOptions()));
    for (at->SeekToFirst(); at->Valid(); at->Next(), count++) {
        all.Add(at->key());
        all.Add(at->value());
    }
    Must(at->status());
    for (at->SeekToLast(); at->Valid(); at->Prev()) count++;
    printf("scan: %d, %016llx\n", count, static_cast<unsigned long long>(all.sum));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    keys = atoi(argv[1]);
    threads = atoi(argv[2]);
    if (keys < 1 || threads < 1 || threads > kThreadsMax) return 2;
    std::unique_ptr<leveldb::Env> files(leveldb::NewMemEnv(leveldb::Env::Default()));
    OneWorkerEnv env(files.get());
    std::unique_ptr<const leveldb::FilterPolicy> bloom(leveldb::NewBloomFilterPolicy(10));
    leveldb::Options options;
    options.create_if_missing = true;
    options.env = &env;
    options.filter_policy = bloom.get();
    options.write_buffer_size = 16 << 20;
    Must(leveldb::DB::Open(options, "/database", &db));
    InThreads("write", Write);
    delete db;
    Must(leveldb::DB::Open(options, "/database", &db));
    Compact();
    InThreads("read", Read);
    Scan();
    delete db;
    return 0;
}
