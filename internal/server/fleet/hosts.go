package fleet

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"kici/internal/core/ci"
	"kici/internal/server/store"
)

// InvalidHostError says what of a declaration cannot be, by the name that the admin API gives it.
type InvalidHostError struct{ Field, Right string }

func (e *InvalidHostError) Error() string { return fmt.Sprintf("%s must be %s", e.Field, e.Right) }

// ErrConnected says that a host cannot be forgotten, since its agent is connected.
var ErrConnected = errors.New("its agent is connected; stop the agent first")

// Host is a host that an operator declared, under the id that its agent has or will have.
type Host struct {
	AgentID    string
	Labels     []string
	Properties map[string]any // string, float64 or bool
	Hostname   string         // "" until an agent says it
	Reach      Reach
	DeclaredAt int64 // epoch milliseconds
	UpdatedAt  int64
}

// Reach is how SSH gets to a host. Without an address it does not.
type Reach struct {
	Address   string // a name or an IP address, without the port
	User      string
	Port      int
	KeySecret string // scope/key of the secret that holds the private key
	HostKey   string // the host's public key as known_hosts has it; "" accepts whichever the host shows first
}

// Bounds of a declaration.
const (
	maxHostLabels     = 256
	maxHostProperties = 256
	defaultSSHPort    = 22
	defaultSSHUser    = "root"
)

var (
	// Addresses and users become arguments of connections and lines of logs.
	hostAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.:_%-]*[A-Za-z0-9])?$`) })
	hostUser    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9._-]*\$?$`) })
	hostSecret  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._:-]+(/[A-Za-z0-9._-]+)+$`) })
)

// complete fills in what was left out and refuses what cannot be.
func (h *Host) complete() error {
	if h.Reach.Port == 0 {
		h.Reach.Port = defaultSSHPort
	}
	if h.Reach.User == "" {
		h.Reach.User = defaultSSHUser
	}
	r := h.Reach
	for _, check := range []struct {
		fine  bool
		field string
		right string
	}{
		{name(h.AgentID), "agentId", "a text of 1 to 128 characters without control characters"},
		{h.Hostname == "" || name(h.Hostname), "hostname", "a text of at most 128 characters without control characters"},
		{len(h.Labels) <= maxHostLabels && !slices.ContainsFunc(h.Labels, func(l string) bool { return !name(l) }), "labels",
			"at most 256 texts of 1 to 128 characters"},
		{!slices.ContainsFunc(h.Labels, reserved), "labels", "none that begins with kici:, which tokens and agents alone give"},
		{len(h.Properties) <= maxHostProperties && plain(h.Properties), "properties", "at most 256 members that are texts, numbers or booleans"},
		{r.Address == "" || len(r.Address) <= 253 && hostAddress().MatchString(r.Address), "address", "a host name or an IP address, without the port"},
		{len(r.User) <= 64 && hostUser().MatchString(r.User), "sshUser", "the name of a user"},
		{r.Port > 0 && r.Port < 1<<16, "sshPort", "1 to 65535"},
		{r.KeySecret == "" || len(r.KeySecret) <= 2*ci.MaxRepository && hostSecret().MatchString(r.KeySecret) && !strings.HasPrefix(r.KeySecret, "__") && !strings.Contains(r.KeySecret, "/__"), "sshKeySecret", "the scope and key of a secret, as in hosts/web-3/SSH_KEY"},
		{r.HostKey == "" || validHostKey(r.HostKey), "sshHostKey", "a public key as a known_hosts file has it, as in ssh-ed25519 AAAA…"},
	} {
		if !check.fine {
			return &InvalidHostError{check.field, check.right}
		}
	}
	return nil
}

func name(s string) bool {
	return s != "" && s == ci.CutName(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func reserved(l string) bool { return strings.HasPrefix(strings.ToLower(l), "kici:") }

func plain(properties map[string]any) bool {
	for k, v := range properties {
		text, isText := v.(string)
		_, isNumber := v.(float64)
		_, isFlag := v.(bool)
		if !name(k) || !isText && !isNumber && !isFlag || text != ci.CutText(text) {
			return false
		}
	}
	return true
}

func validHostKey(text string) bool {
	_, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	return err == nil && len(rest) == 0 && len(text) <= 1<<14
}

// Declare writes a host down, or anew, and reports whether it is new. The error may be an
// *InvalidHostError.
func Declare(ctx context.Context, tx *store.Tx, h Host, at int64) (created bool, err error) {
	if err := h.complete(); err != nil {
		return false, err
	}
	docs, err := encode(append([]string{}, h.Labels...), orEmpty(h.Properties))
	if err != nil {
		return false, fmt.Errorf("declare host %s: %w", h.AgentID, err)
	}
	args := []any{h.AgentID, docs[0], docs[1], h.Hostname, h.Reach.Address, h.Reach.User, h.Reach.Port, h.Reach.KeySecret, h.Reach.HostKey, at}
	if created, err = store.Changed(tx.ExecContext(ctx, insertHost, args...)); err == nil && !created {
		err = tx.Do(ctx, updateHost, args...)
	}
	if err != nil {
		return false, fmt.Errorf("declare host %s: %w", h.AgentID, err)
	}
	return created, nil
}

func orEmpty(properties map[string]any) map[string]any {
	if properties == nil {
		return map[string]any{}
	}
	return properties
}

// Declared reads one declared host, or gives ErrUnknown.
func Declared(ctx context.Context, q store.Querier, agentID string) (Host, error) {
	h, err := scanHost(q.QueryRowContext(ctx, selectHost+" WHERE agent_id = $1", agentID))
	if errors.Is(err, sql.ErrNoRows) {
		return Host{}, fmt.Errorf("host %s: %w", agentID, ErrUnknown)
	}
	if err != nil {
		return Host{}, fmt.Errorf("read host %s: %w", agentID, err)
	}
	return h, nil
}

// DeclaredHosts reads all declared hosts, by id.
func DeclaredHosts(ctx context.Context, q store.Querier) ([]Host, error) {
	rows, err := q.QueryContext(ctx, selectHost+" ORDER BY agent_id")
	if err != nil {
		return nil, fmt.Errorf("list declared hosts: %w", err)
	}
	defer rows.Close()
	var out []Host
	for rows.Next() {
		h, err := scanHost(rows)
		if err != nil {
			return nil, fmt.Errorf("list declared hosts: %w", err)
		}
		out = append(out, h)
	}
	return out, rows.Err()
}

// ForgetHost removes a declaration and what is known of an agent of that id, and reports whether there was either.
// ErrConnected refuses it while the agent is there: it would only come back.
func ForgetHost(ctx context.Context, tx *store.Tx, agentID string) (existed bool, err error) {
	a, err := Get(ctx, tx, agentID)
	switch {
	case err == nil && a.Connected():
		return true, fmt.Errorf("host %s: %w", agentID, ErrConnected)
	case err != nil && !errors.Is(err, ErrUnknown):
		return false, err
	}
	for _, statement := range []string{
		"DELETE FROM declared_hosts WHERE agent_id = $1",
		"DELETE FROM agents WHERE agent_id = $1 AND disconnected_at IS NOT NULL",
	} {
		changed, err := store.Changed(tx.ExecContext(ctx, statement, agentID))
		if err != nil {
			return false, fmt.Errorf("forget host %s: %w", agentID, err)
		}
		existed = existed || changed
	}
	return existed, nil
}

func scanHost(row interface{ Scan(...any) error }) (h Host, err error) {
	var labels, properties string
	err = row.Scan(&h.AgentID, &labels, &properties, &h.Hostname, &h.Reach.Address, &h.Reach.User, &h.Reach.Port, &h.Reach.KeySecret,
		&h.Reach.HostKey, &h.DeclaredAt, &h.UpdatedAt)
	if err != nil {
		return Host{}, err
	}
	if err = json.Unmarshal([]byte(labels), &h.Labels); err == nil {
		err = json.Unmarshal([]byte(properties), &h.Properties)
	}
	if err != nil {
		return Host{}, fmt.Errorf("decode host %s: %w", h.AgentID, err)
	}
	return h, nil
}

const (
	selectHost = `SELECT agent_id, labels, properties, hostname, address, ssh_user, ssh_port, ssh_key_secret, ssh_host_key, declared_at, updated_at
FROM declared_hosts`

	insertHost = `INSERT INTO declared_hosts (agent_id, labels, properties, hostname, address, ssh_user, ssh_port, ssh_key_secret, ssh_host_key,
    declared_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10) ON CONFLICT (agent_id) DO NOTHING`

	updateHost = `UPDATE declared_hosts SET labels = $2, properties = $3, hostname = $4, address = $5, ssh_user = $6, ssh_port = $7,
    ssh_key_secret = $8, ssh_host_key = $9, updated_at = $10 WHERE agent_id = $1`
)
