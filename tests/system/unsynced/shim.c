/* Records what a process has made durable in one folder, so that a test can take everything else away again.
 *
 * Loaded with LD_PRELOAD. Watches the files directly in $UNSYNCED_ROOT and appends to $UNSYNCED_LOG, one line an event:
 *     S inode length           fsync or fdatasync of a file came back; it was that long when the call began
 *     T inode length           a file was cut to that length: by truncation, or by being opened with O_TRUNC
 *     D inode:name/inode:name  fsync of the folder came back; these were its regular files when the call began
 * Before a name goes away (unlink, or a rename over it) its file is linked into $UNSYNCED_GRAVES under its inode's number: until
 * the folder is synced the old name may come back, and as long as the link is there the inode's number is not used again.
 *
 * Rule 1: what is logged is at most what is durable. Lengths and names are taken before the call, the line is written after it.
 * Rule 2: the line is in the log before the caller goes on: whatever it tells others after a sync is covered by the log.
 * sync_file_range, msync and close promise nothing and are not looked at. Bytes that are written over inside the synced length
 * are not seen: the files of RocksDB only grow.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE (1 << 18)

static const char *root, *graves;
static size_t root_length;
static int log_fd = -1;

__attribute__((constructor)) static void begin(void) {
    const char *log = getenv("UNSYNCED_LOG");
    root = getenv("UNSYNCED_ROOT");
    graves = getenv("UNSYNCED_GRAVES");
    if (!root || !log || !graves) return;
    root_length = strlen(root);
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* A log that cannot be written would make the test lie. */
static void put(const char *line, size_t length) {
    if (syscall(SYS_write, log_fd, line, length) != (long)length) abort();
}

static void put_length(char event, const struct stat *file, long long length) {
    char line[64];
    put(line, (size_t)snprintf(line, sizeof line, "%c %llu %lld\n", event, (unsigned long long)file->st_ino, length));
}

/* The name in the folder that a path stands for; NULL: it is elsewhere. */
static const char *name_of(const char *path) {
    if (log_fd < 0 || !path || strncmp(path, root, root_length) != 0 || path[root_length] != '/') return NULL;
    const char *name = path + root_length;
    while (*name == '/') name++;
    return *name && !strchr(name, '/') ? name : NULL;
}

/* Whether a descriptor is a regular file in the folder (1), the folder itself (2) or neither (0). */
static int watched(int fd, struct stat *found) {
    char link[64], path[4096];
    if (log_fd < 0 || fd < 0 || fstat(fd, found) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (S_ISDIR(found->st_mode)) return strcmp(path, root) == 0 ? 2 : 0;
    return S_ISREG(found->st_mode) && name_of(path) ? 1 : 0;
}

static size_t list_folder(char *line) {
    size_t at = (size_t)sprintf(line, "D ");
    DIR *folder = opendir(root);
    if (!folder) abort();
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_type != DT_REG) continue;
        at += (size_t)snprintf(line + at, LINE - at, "%llu:%s/", (unsigned long long)entry->d_ino, entry->d_name);
        if (at >= LINE - 1) abort();
    }
    closedir(folder);
    line[at++] = '\n';
    return at;
}

static int synced(int fd, const char *call) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    struct stat before;
    int kind = watched(fd, &before);
    if (kind != 2) {
        int result = real(fd);
        if (kind && result == 0) put_length('S', &before, (long long)before.st_size);
        return result;
    }
    char *line = malloc(LINE);
    if (!line) abort();
    size_t length = list_folder(line);
    int result = real(fd);
    if (result == 0) put(line, length);
    free(line);
    return result;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

static void bury(const char *path) {
    struct stat file;
    char grave[4096];
    if (!name_of(path) || lstat(path, &file) != 0 || !S_ISREG(file.st_mode)) return;
    snprintf(grave, sizeof grave, "%s/%llu", graves, (unsigned long long)file.st_ino);
    if (link(path, grave) != 0 && errno != EEXIST) abort();
}

int unlink(const char *path) {
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    bury(path);
    return real(path);
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    bury(to);
    return real(from, to);
}

static int cut(int fd, off_t length, const char *call) {
    int (*real)(int, off_t) = (int (*)(int, off_t))dlsym(RTLD_NEXT, call);
    struct stat file;
    int result = real(fd, length);
    if (result == 0 && watched(fd, &file) == 1) put_length('T', &file, (long long)length);
    return result;
}

int ftruncate(int fd, off_t length) { return cut(fd, length, "ftruncate"); }
int ftruncate64(int fd, off_t length) { return cut(fd, length, "ftruncate64"); }

static int opened(int fd, int flags) {
    struct stat file;
    if (fd >= 0 && (flags & O_TRUNC) && watched(fd, &file) == 1) put_length('T', &file, 0);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) \
        int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        return opened(real(path, flags, mode), flags); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        MODE(flags) \
        int (*real)(int, const char *, int, ...) = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name); \
        return opened(real(folder, path, flags, mode), flags); \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int creat(const char *path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open64(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }
