package storetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// private is a PostgreSQL server of this test process, in a scratch folder of its own.
type private struct {
	dir, data string
	bin, name string // of the programs and of the superuser
	attr      *syscall.SysProcAttr
	url       string
	process   *os.Process
	ended     chan struct{} // closed when the server has
}

// server is the one that tests share.
var server struct {
	mu sync.Mutex
	*private
}

// startPostgres makes a cluster and starts it. It ends with this process, even when that is killed.
func startPostgres() (string, error) {
	server.mu.Lock()
	defer server.mu.Unlock()
	p, err := newPrivate(freePort)
	if err != nil {
		return "", err
	}
	server.private = p
	return p.url, nil
}

func stopPostgres() {
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.private != nil {
		server.stop()
	}
}

// portTries bounds the ports that are tried. Between the moment in which one is found free and that in which the server takes
// it, another process may have it.
const portTries = 10

// newPrivate makes a cluster and starts it on a loopback port. As root it runs as the user postgres, since the server
// refuses root.
func newPrivate(port func() (int, error)) (*private, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kici-test-pg-")
	if err != nil {
		return nil, err
	}
	p := &private{bin: bin, dir: dir, data: filepath.Join(dir, "data")}
	if p.attr, p.name, err = postgresUser(dir); err == nil {
		err = p.start(port)
	}
	if err != nil {
		_ = os.RemoveAll(dir) // the first error says more
		return nil, err
	}
	return p, nil
}

func (p *private) start(port func() (int, error)) error {
	initdb := exec.Command(filepath.Join(p.bin, "initdb"), "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8", "-U", p.name, p.data)
	initdb.SysProcAttr, initdb.Dir = p.attr, p.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	var failed error
	for range portTries {
		n, err := port()
		if err != nil {
			return err
		}
		if failed = p.startOn(n); !errors.Is(failed, errEnded) {
			return failed
		}
	}
	return failed
}

// startOn starts the server and returns when it answers.
func (p *private) startOn(port int) error {
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), "-D", p.data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+p.dir, "-c", "fsync=off",
		"-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=200", "-c", "shared_buffers=32MB")
	cmd.SysProcAttr, cmd.Dir, cmd.Stderr = p.attr, p.dir, log
	p.ended = make(chan struct{})
	if err := startBound(cmd, p.ended); err != nil {
		return err
	}
	p.process = cmd.Process
	p.url = fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", p.name, port)
	if err := p.awaitReady(); err != nil {
		p.halt()
		said, _ := os.ReadFile(log.Name()) // without it the error says less
		return fmt.Errorf("private PostgreSQL on port %d: %w: %s", port, err, said)
	}
	return nil
}

// startBound starts cmd on a thread that lives as long as it does: the kernel ties the parent-death signal to the thread that
// forked. It closes ended when cmd has ended.
func startBound(cmd *exec.Cmd, ended chan struct{}) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed in the end
			close(ended)
		}
	}()
	return <-started
}

// readyLimit bounds the wait for a server that starts. It is long, since a busy machine is no failure.
const readyLimit = time.Minute

var errEnded = errors.New("the server ended")

// awaitReady asks the server until it answers. What answers on the port may be the server of another test process that was
// faster to take it, which would end in the midst of this one's tests.
func (p *private) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	for {
		data, err := dataDirectory(ctx, p.url)
		if err == nil && data == p.data {
			return nil
		}
		select {
		case <-p.ended:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s: %w", readyLimit, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dataDirectory tells which server answers.
func dataDirectory(ctx context.Context, url string) (dir string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir)
	return dir, errors.Join(err, conn.Close(ctx))
}

// halt ends the server at once: nothing in it is kept.
func (p *private) halt() {
	_ = p.process.Signal(syscall.SIGQUIT) // it may have ended by itself
	<-p.ended
}

func (p *private) stop() {
	p.halt()
	_ = os.RemoveAll(p.dir) // what stays is in the folder for temporary files
}

// postgresBin finds the newest server on the machine, on PATH or where Debian puts it.
func postgresBin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%w: no server binaries found", errAbsent)
	}
	return filepath.Dir(slices.Max(found)), nil
}

func postgresUser(dir string) (*syscall.SysProcAttr, string, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return attr, "kici", nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, "", fmt.Errorf("%w: no user that the server could run as: %w", errAbsent, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, "", err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, "", err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, "postgres", os.Chown(dir, uid, gid)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
