package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
)

// The files of a data folder.
const (
	lockFile     = "server.lock"
	nodeFile     = "node-id"
	databaseFile = "kici.db"
	keyFile      = "master.key"
	tokenFile    = "admin.token"
	addressFile  = "server.json"
	logFolder    = "logs"
)

// node is this server process: its data folder, held against a second server, and its identity, which survives restarts
// so that it finds what it gave out before.
type node struct {
	dir  string
	id   string
	lock *os.File
}

// openNode makes the data folder, takes its lock and reads or makes the identity. A configured id wins.
func openNode(dir, id string) (n *node, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	n = &node{dir: dir, id: id}
	if n.lock, err = awaitFolder(n.path(lockFile)); err != nil {
		return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
	}
	if n.id == "" {
		n.id, err = readOrMakeID(n.path(nodeFile))
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// errLocked says that another server uses the folder.
var errLocked = errors.New("another kici server uses it; stop that one or choose another folder with --data")

func readOrMakeID(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err == nil && len(strings.TrimSpace(string(raw))) > 0 {
		return strings.TrimSpace(string(raw)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read node identity: %w", err)
	}
	id := uuid.NewString()
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write node identity: %w", err)
	}
	return id, nil
}

// announce writes where the server listens, so that administration on the same machine finds it. The file is replaced
// as a whole: a reader never sees a part.
func (n *node) announce(url string) error {
	raw, err := json.Marshal(map[string]string{"url": url})
	if err != nil {
		return err
	}
	temp := n.path(addressFile + ".new")
	if err := os.WriteFile(temp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write server address: %w", err)
	}
	return os.Rename(temp, n.path(addressFile))
}

// The times for which a lock is waited for.
const (
	lockPatience = time.Second
	lockPause    = 10 * time.Millisecond
)

// awaitFolder takes the lock of a data folder. It waits a moment for one that is taken: a server that was killed is still ending,
// or a process that somebody forked just then has not yet closed what it inherited.
func awaitFolder(path string) (lock *os.File, err error) {
	for end := time.Now().Add(lockPatience); ; time.Sleep(lockPause) {
		if lock, err = lockFolder(path); !errors.Is(err, errLocked) || time.Now().After(end) {
			return lock, err
		}
	}
}

// HoldFolder takes the lock of an existing data folder, as a server does that runs with it, so that none starts while
// something is done with the folder. It fails where a server runs.
func HoldFolder(dir string) (release func() error, err error) {
	lock, err := awaitFolder(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}

// close gives the folder back. The lock goes with the file; after a kill the kernel does the same.
func (n *node) close() error {
	err := os.Remove(n.path(addressFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, n.lock.Close())
}
