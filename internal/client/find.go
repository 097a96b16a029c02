package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Where says how to reach a server: what the caller names, else what the variables name, else the server whose data
// folder lies on this machine. That server's token goes to no other one.
type Where struct {
	URL, Token string // of flags
	DataDir    string // "" is the default one
	Env        func(name string) string
}

// Connect makes the client. Its error says what is missing and how to give it.
func Connect(w Where) (*Client, error) {
	base, token := first(w.URL, w.Env("KICI_ADMIN_URL")), first(w.Token, w.Env("KICI_ADMIN_TOKEN"))
	dir := w.Folder()
	local, err := localURL(dir)
	if base == "" {
		if err != nil {
			return nil, err
		}
		base = local
	}
	if token == "" {
		if !sameServer(base, local) {
			return nil, fmt.Errorf("no admin token for %s: set KICI_ADMIN_TOKEN", base)
		}
		if token, err = localToken(dir); err != nil {
			return nil, err
		}
	}
	return New(base, token)
}

// sameServer tells whether two URLs reach one server: they are equal, or both name this machine by its loopback address
// and the same port.
func sameServer(a, b string) bool {
	x, errX := url.Parse(strings.TrimRight(a, "/"))
	y, errY := url.Parse(strings.TrimRight(b, "/"))
	if errX != nil || errY != nil || x.Scheme != y.Scheme || x.Port() != y.Port() || x.Path != y.Path {
		return false
	}
	return x.Hostname() == y.Hostname() || loopback(x.Hostname()) && loopback(y.Hostname())
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// defaultDataDir is $XDG_DATA_HOME/kici, by default ~/.local/share/kici.
func defaultDataDir(env func(string) string) string {
	if base := env("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "kici")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "kici")
}

func localURL(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "server.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no server runs with the data folder %s: start one with kici server, or name one with --url or KICI_ADMIN_URL", dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the server: %w", err)
	}
	var body struct{ URL string }
	if err := json.Unmarshal(raw, &body); err != nil {
		return "", fmt.Errorf("find the server: %s: %w", filepath.Join(dir, "server.json"), err)
	}
	return body.URL, nil
}

func localToken(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "admin.token"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("no admin token: set KICI_ADMIN_TOKEN, or name the server's data folder with --data")
	}
	if err != nil {
		return "", fmt.Errorf("find the admin token: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// Folder is the data folder on this machine.
func (w Where) Folder() string {
	return first(w.DataDir, w.Env("KICI_DATA_DIR"), defaultDataDir(w.Env))
}
