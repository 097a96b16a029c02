package storetest

import (
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
)

// server is the private PostgreSQL of this test process.
var server struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	dir string
}

// startPostgres makes a cluster in a scratch folder and starts it on a free loopback port. As root it runs as the user
// postgres, since the server refuses root. It ends with this process, even when that is killed.
func startPostgres() (string, error) {
	bin, err := postgresBin()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "kici-test-pg-")
	if err != nil {
		return "", err
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	server.dir = dir
	attr, name, err := postgresUser(dir)
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8", "-U", name, data)
	initdb.SysProcAttr, initdb.Dir = attr, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+dir, "-c", "fsync=off",
		"-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "max_connections=200", "-c", "shared_buffers=32MB")
	cmd.SysProcAttr, cmd.Dir = attr, dir
	if err := startBound(cmd); err != nil {
		return "", err
	}
	server.cmd = cmd
	url := fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", name, port)
	return url, waitReady(url)
}

// startBound starts cmd on a thread that lives as long as the process: the kernel ties the parent-death signal to the
// thread that forked.
func startBound(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}

func stopPostgres() {
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.cmd != nil {
		_ = server.cmd.Process.Signal(syscall.SIGQUIT) // immediate: nothing in it is kept
		_ = server.cmd.Wait()
	}
	if server.dir != "" {
		_ = os.RemoveAll(server.dir)
	}
}

// postgresBin finds the newest server on the machine, on PATH or where Debian puts it.
func postgresBin() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("no PostgreSQL server binaries found")
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
		return nil, "", err
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

// waitReady asks the server until it answers, for ten seconds at most.
func waitReady(url string) error {
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err = adminExec(url, "SELECT 1"); err == nil {
			return nil
		}
		<-time.After(20 * time.Millisecond)
	}
	return fmt.Errorf("private PostgreSQL does not answer: %w", err)
}
