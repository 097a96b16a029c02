package git

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// command is git on one repository, with an environment made from nothing. The directory is named outright: git then
// neither searches for it nor asks who owns it. A missing object of a partial clone would be fetched by the transport
// that the repository's configuration names, which may be any program; no transport is allowed, so none runs.
func command(ctx context.Context, gitDir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir=" + gitDir, "--no-pager",
		"-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"}, args...)...)
	cmd.Dir = gitDir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=/nonexistent",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		// A replacement object would show another content under the id that the event names.
		"GIT_NO_REPLACE_OBJECTS=1",
	}
	cmd.WaitDelay = time.Second
	return cmd
}

// run executes one git command and returns what it printed. The output of the commands used here is one line.
func run(ctx context.Context, gitDir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var out, errOut tail
	cmd := command(ctx, gitDir, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w%s", args[0], err, errOut.sentence())
	}
	return out.String(), nil
}

// answerTime bounds one answer of git. A repository on a file system that hangs then costs one request, not a worker.
const answerTime = 20 * time.Second

// process is one `git cat-file --batch`: a line with a name goes in, a header and the content come out. One caller uses
// it at a time.
type process struct {
	dir   string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	stop  context.CancelFunc
	ended chan struct{} // closed when the process is gone and waited for
	err   *tail         // what it complained about
	idle  *time.Timer   // ends it when unused; owned by the Reader
}

func start(dir string) (*process, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &process{dir: dir, cmd: command(ctx, dir, "cat-file", "--batch"), stop: stop, ended: make(chan struct{}), err: &tail{}}
	p.cmd.Stderr = p.err
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	err := errors.Join(errIn, errOut)
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("start git: %w", err)
	}
	p.in, p.out = in, bufio.NewReaderSize(out, 16<<10)
	return p, nil
}

// close ends the process and returns when it has been waited for, so that no zombie stays.
func (p *process) close() {
	p.stop()
	_ = p.in.Close()
	_ = p.cmd.Wait() // it was killed: its exit status says nothing
	close(p.ended)
}

// object is one answer; kind is "" when there is no such object.
type object struct {
	id, kind string
	data     []byte
}

// broken wraps an error after which the process's pipe no longer stands at the start of an answer: it must be ended.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

// readBoth reads a commit and a file of it. An id means the same for ever, so both questions go out at once, which spares
// a change of processes; a name is resolved first, so that both answers are of one commit.
func (p *process) readBoth(rev, path string, limit int64) (commit, file object, err error) {
	names := []string{rev + "^{commit}"}
	if IsCommitID(rev) {
		names = append(names, rev+":"+path)
	}
	if err := p.ask(names...); err != nil {
		return object{}, object{}, err
	}
	if commit, err = p.read(maxCommit); err != nil {
		return object{}, object{}, err
	}
	if len(names) == 1 {
		if commit.kind == "" {
			return object{}, object{}, nil
		}
		if err := p.ask(commit.id + ":" + path); err != nil {
			return commit, object{}, err
		}
	}
	file, err = p.read(limit)
	return commit, file, err
}

func (p *process) ask(names ...string) error {
	if _, err := io.WriteString(p.in, strings.Join(names, "\n")+"\n"); err != nil {
		return broken{fmt.Errorf("ask git: %w", err)}
	}
	return nil
}

// read reads the next answer. An object larger than limit is not read at all: ErrTooLarge, and the process is broken.
func (p *process) read(limit int64) (object, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return object{}, broken{fmt.Errorf("answer of git: %w%s", err, p.err.sentence())}
	}
	line = strings.TrimSuffix(line, "\n")
	if strings.HasSuffix(line, " missing") || strings.HasSuffix(line, " ambiguous") {
		return object{}, nil
	}
	fields := strings.Split(line, " ")
	size, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if err != nil || len(fields) != 3 {
		return object{}, broken{fmt.Errorf("answer of git: unexpected %.100q", line)}
	}
	if size > limit {
		return object{}, broken{fmt.Errorf("%d bytes, at most %d are read: %w", size, limit, ErrTooLarge)}
	}
	data := make([]byte, size+1) // a newline follows the content
	if _, err := io.ReadFull(p.out, data); err != nil {
		return object{}, broken{fmt.Errorf("answer of git: %w%s", err, p.err.sentence())}
	}
	return object{id: fields[0], kind: fields[1], data: data[:size]}, nil
}

// Dir finds the git directory of a repository, bare or not, with every symbolic link resolved. The folder of the repository
// itself may be none.
func Dir(repo string) (string, error) {
	for _, name := range []string{".git", "."} {
		dir, info, err := realPath(repo, name)
		if err != nil {
			continue
		}
		if info.Mode().IsRegular() {
			if dir, err = linkedDir(dir); err != nil {
				continue
			}
		}
		if isGitDir(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s: %w", repo, ErrNoRepository)
}

// RealPath is the place of a clean relative path below a folder that no symbolic link leads to, with every link on its way
// resolved. It asks for no more than the elements of the path, as long as none of them is a link.
func RealPath(folder, name string) (string, error) {
	place, _, err := realPath(folder, name)
	return place, err
}

// realPath also tells what is there.
func realPath(folder, name string) (place string, info fs.FileInfo, err error) {
	place = folder
	for element := range strings.SplitSeq(filepath.ToSlash(name), "/") {
		place = filepath.Join(place, element)
		if info, err = os.Lstat(place); err != nil {
			return "", nil, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			if place, err = filepath.EvalSymlinks(filepath.Join(folder, name)); err != nil {
				return "", nil, err
			}
			info, err = os.Lstat(place)
			return place, info, err
		}
	}
	return place, info, nil
}

// linkedDir follows the file .git of a worktree or submodule, which names the directory.
func linkedDir(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, 4096)) // the longest path that the system takes
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), "gitdir: ")
	if !ok {
		return "", ErrNoRepository
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(file), dir)
	}
	return filepath.EvalSymlinks(dir)
}

// isGitDir looks for HEAD alone: git itself says what else may be wrong.
func isGitDir(dir string) bool {
	head, err := os.Lstat(filepath.Join(dir, "HEAD"))
	if err != nil || head.IsDir() {
		return false
	}
	if _, err := os.Stat(filepath.Join(dir, "objects")); err == nil {
		return true
	}
	_, err = os.Stat(filepath.Join(dir, "commondir"))
	return err == nil
}

// tail keeps the first bytes of an output for error messages and drops the rest.
type tail struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

const maxTail = 2048

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := maxTail - t.kept.Len(); room > 0 {
		t.kept.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept.String()
}

func (t *tail) sentence() string {
	if s := strings.TrimSpace(t.String()); s != "" {
		return ": " + s
	}
	return ""
}
