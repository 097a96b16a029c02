package workspace

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Auth is the credential for one repository.
type Auth struct {
	Kind          string // "basic" or "ssh"
	User          string // basic only; "" is x-access-token
	Secret        string // password or token, or a private key in PEM
	HostKeyPolicy string // ssh: "pinned", or "accept-new" (also "")
	KnownHosts    string // ssh and pinned: the text of a known_hosts file
}

// access is what git processes need for one repository: a URL without secrets, an environment with them, and the
// private folder that holds key and configuration files until close.
type access struct {
	url   string
	git   *git
	token string // tells credentials apart; never leaves this process
	dir   string // made for the first git process; a tree from memory needs none
}

// openAccess prepares the access of git. Secrets go into environment variables and private files only: the command
// line of a process is open to every user of the machine.
func (w *Workspace) openAccess(rawURL string, auth *Auth) (*access, error) {
	plain, auth, err := plainURL(rawURL, auth)
	if err != nil {
		return nil, err
	}
	secrets, err := auth.secrets()
	if err != nil {
		return nil, err
	}
	a := &access{url: plain, token: strings.Join(secrets, "\x00")}
	environ := sync.OnceValues(func() ([]string, error) { return a.environ(w.opts, auth) })
	a.git = &git{environ: environ, redact: replacer(secrets)}
	return a, nil
}

// secrets are the texts that must not show. A credential that cannot be used is an error.
func (auth *Auth) secrets() ([]string, error) {
	switch {
	case auth == nil:
		return nil, nil
	case auth.Kind == "basic":
		return []string{auth.Secret, auth.pair()}, nil
	case auth.Kind != "ssh":
		return nil, fmt.Errorf("unknown kind of credential %q", auth.Kind)
	case auth.HostKeyPolicy == "pinned" && strings.TrimSpace(auth.KnownHosts) == "":
		return nil, errors.New("the host key is to be pinned and no known hosts are given")
	}
	return []string{auth.Secret}, nil
}

// pair is user and password as HTTP wants them.
func (auth *Auth) pair() string {
	user := auth.User
	if user == "" {
		user = "x-access-token"
	}
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + auth.Secret))
}

// environ makes the environment of git processes, and the files that it names.
func (a *access) environ(opts Options, auth *Auth) ([]string, error) {
	dir, err := tempDir(opts.TempDir)
	if err != nil {
		return nil, err
	}
	a.dir = dir
	env := append(cleanEnviron(opts.Environ), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C", "GIT_ADVICE=0")
	switch {
	case auth == nil:
	case auth.Kind == "basic":
		env = append(env, "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=http."+origin(a.url)+".extraHeader", "GIT_CONFIG_VALUE_0=Authorization: Basic "+auth.pair())
	default:
		command, err := writeSSH(dir, auth)
		if err != nil {
			return nil, err
		}
		env = append(env, "GIT_SSH_COMMAND="+command)
	}
	if isLocal(a.url) {
		config, err := writeGlobalConfig(dir, opts.Environ)
		if err != nil {
			return nil, err
		}
		env = append(env, "GIT_CONFIG_GLOBAL="+config)
	}
	return env, nil
}

func (a *access) close() {
	if a.dir != "" {
		_ = removeAll(a.dir)
	}
}

// plainURL takes a password out of the URL, so that it can neither show in a process list nor stay in .git/config.
func plainURL(raw string, auth *Auth) (string, *Auth, error) {
	if raw == "" || strings.HasPrefix(raw, "-") || strings.ContainsAny(raw, "\x00\n\r") {
		return "", nil, errors.New("the repository URL is empty or malformed")
	}
	if !strings.Contains(raw, "://") {
		return raw, auth, nil // a path, or host:path of ssh
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", nil, errors.New("the repository URL is malformed") // the parser's error would repeat a password
	}
	if u.User == nil || u.Scheme == "ssh" {
		return raw, auth, nil
	}
	password, ok := u.User.Password()
	if !ok { // https://<token>@host
		password = u.User.Username()
	}
	if auth == nil && password != "" {
		auth = &Auth{Kind: "basic", Secret: password}
		if ok {
			auth.User = u.User.Username()
		}
	}
	u.User = nil
	return u.String(), auth, nil
}

// origin is scheme and host of the URL: the header must not go to another host that a repository refers to.
func origin(plain string) string {
	u, err := url.Parse(plain)
	if err != nil || u.Host == "" {
		return plain
	}
	return u.Scheme + "://" + u.Host + "/"
}

func isLocal(u string) bool {
	return strings.HasPrefix(u, "file://") || strings.HasPrefix(u, "/") || strings.HasPrefix(u, ".")
}

// writeSSH puts key and known hosts into the private folder and returns the command for git.
func writeSSH(dir string, auth *Auth) (string, error) {
	key, hosts := filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts")
	strict, known := "accept-new", ""
	if auth.HostKeyPolicy == "pinned" {
		strict, known = "yes", auth.KnownHosts
	}
	// OpenSSH refuses a key file without its last line end.
	if err := os.WriteFile(key, []byte(strings.TrimRight(auth.Secret, "\n")+"\n"), 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(hosts, []byte(known), 0o600); err != nil {
		return "", err
	}
	return fmt.Sprintf("ssh -i %s -o IdentitiesOnly=yes -o BatchMode=yes -o UserKnownHostsFile=%s -o StrictHostKeyChecking=%s",
		shellWord(key), shellWord(hosts), strict), nil
}

var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_./-]+$`) })

func shellWord(s string) string {
	if plainWord().MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// writeGlobalConfig makes git read a local repository that another user owns. git takes this setting neither from the
// command line nor from GIT_CONFIG_COUNT when it serves a local repository, so it needs a file, which includes the
// user's own.
func writeGlobalConfig(dir string, environ []string) (string, error) {
	var b strings.Builder
	for _, path := range userConfigs(environ) {
		fmt.Fprintf(&b, "[include]\n\tpath = %s\n", configValue(path))
	}
	b.WriteString("[safe]\n\tdirectory = *\n")
	path := filepath.Join(dir, "gitconfig")
	return path, os.WriteFile(path, []byte(b.String()), 0o600)
}

func userConfigs(environ []string) []string {
	if path := lookup(environ, "GIT_CONFIG_GLOBAL"); path != "" {
		return []string{path}
	}
	home := lookup(environ, "HOME")
	xdg := lookup(environ, "XDG_CONFIG_HOME")
	if xdg == "" && home != "" {
		xdg = filepath.Join(home, ".config")
	}
	var found []string
	if xdg != "" {
		found = append(found, filepath.Join(xdg, "git", "config"))
	}
	if home != "" {
		found = append(found, filepath.Join(home, ".gitconfig"))
	}
	return found // git passes over an included file that is missing
}

// configValue quotes a value for a git configuration file.
func configValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

func lookup(environ []string, name string) string {
	value := ""
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// cleanEnviron leaves out the agent's own settings, among them its token, and whatever would point git elsewhere.
func cleanEnviron(environ []string) []string {
	out := make([]string, 0, len(environ)+6)
	for _, kv := range environ {
		if strings.HasPrefix(kv, "KICI_") || strings.HasPrefix(kv, "GIT_") || strings.HasPrefix(kv, "LC_ALL=") {
			continue
		}
		out = append(out, kv)
	}
	return out
}

// replacer masks secrets, each line of a key by itself too, since messages are cut into lines.
func replacer(secrets []string) *strings.Replacer {
	var pairs []string
	for _, s := range secrets {
		for _, part := range append([]string{s}, strings.Split(s, "\n")...) {
			if len(part) >= 3 {
				pairs = append(pairs, part, "***")
			}
		}
	}
	return strings.NewReplacer(pairs...)
}
