package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Where says how to reach a server: what the caller names, else what the variables name, else the server whose data
// folder lies on this machine.
type Where struct {
	URL, Token string // of flags
	DataDir    string // "" is the default one
	Env        func(name string) string
}

// Connect makes the client. Its error says what is missing and how to give it.
func Connect(w Where) (*Client, error) {
	base, token := first(w.URL, w.Env("KICI_ADMIN_URL")), first(w.Token, w.Env("KICI_ADMIN_TOKEN"))
	dir := first(w.DataDir, w.Env("KICI_DATA_DIR"), defaultDataDir(w.Env))
	var err error
	if base == "" {
		if base, err = localURL(dir); err != nil {
			return nil, err
		}
	}
	if token == "" {
		if token, err = localToken(dir); err != nil {
			return nil, err
		}
	}
	return New(base, token)
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
