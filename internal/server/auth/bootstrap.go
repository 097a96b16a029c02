package auth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/google/uuid"

	"kici/internal/kit/seal"
	"kici/internal/server/store"
)

// bootstrapLabel marks the token that a server makes for itself; an index lets only one unrevoked row have it.
const bootstrapLabel = "bootstrap"

// minBootstrap is the shortest token that an operator may choose.
const minBootstrap = 32

// Bootstrap says how the first owner token comes to be.
type Bootstrap struct {
	// Token is the operator's choice, at least 32 characters. It is made valid at every start; a changed one replaces
	// the one before.
	Token string
	// File is where a token that the server makes itself is written, with mode 0600, so that administration on the same
	// machine finds it. Empty writes none.
	File string
	// Out is where such a token is printed, once: the terminal, never a log.
	Out io.Writer
}

// EnsureOwner makes sure that somebody can administer the server. Without b.Token it makes an owner token only when there
// is no unrevoked token at all. Two servers that start at once on one database make one.
func (t *Tokens) EnsureOwner(ctx context.Context, b Bootstrap) error {
	if b.Token != "" {
		return t.ensureChosen(ctx, b.Token)
	}
	token := ""
	err := retryUnique(func() error {
		return t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
			token, err = t.createFirst(ctx, tx, b.File)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("bootstrap admin token: %w", err)
	}
	if token == "" || b.Out == nil {
		return nil
	}
	_, err = fmt.Fprintf(b.Out, "KICI Admin Token: %s\n", token)
	return err
}

// createFirst makes the first owner token and writes its file, or gives "" when there is a token. The file is complete
// before the transaction commits: a token whose text nobody has would lock everybody out.
func (t *Tokens) createFirst(ctx context.Context, tx *store.Tx, file string) (string, error) {
	var one int
	err := tx.QueryRowContext(ctx, selectAnyAdmin).Scan(&one)
	if err == nil {
		return "", nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	token := seal.NewAdminToken()
	if err := t.insertAdmin(ctx, tx, uuid.NewString(), token, NewAdminToken{Label: bootstrapLabel, Role: RoleOwner}); err != nil {
		return "", err
	}
	return token, writeTokenFile(file, token)
}

func (t *Tokens) ensureChosen(ctx context.Context, token string) error {
	if utf8.RuneCountInString(token) < minBootstrap {
		return fmt.Errorf("bootstrap admin token: it must have at least %d characters", minBootstrap)
	}
	err := retryUnique(func() error {
		return t.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return t.replaceChosen(ctx, tx, token) })
	})
	if errors.Is(err, ErrExists) {
		return errors.New("bootstrap admin token: its text is that of another admin token; choose a new one")
	}
	if err != nil {
		return fmt.Errorf("bootstrap admin token: %w", err)
	}
	return nil
}

// replaceChosen gives the bootstrap row the hash of the chosen token. Revoked rows with that hash go first: the operator
// who still configures the token wants it to work.
func (t *Tokens) replaceChosen(ctx context.Context, tx *store.Tx, token string) error {
	hash := seal.HashToken(token)
	if err := tx.Do(ctx, deleteRevokedHash, hash); err != nil {
		return err
	}
	changed, err := store.Changed(tx.ExecContext(ctx, replaceBootstrap, hash))
	if store.IsUnique(err) {
		return ErrExists
	}
	if err != nil || changed {
		return err
	}
	return t.insertAdmin(ctx, tx, uuid.NewString(), token, NewAdminToken{Label: bootstrapLabel, Role: RoleOwner})
}

// retryUnique runs a transaction again when another server was first; the second time it sees that server's row.
func retryUnique(run func() error) error {
	err := run()
	if errors.Is(err, ErrExists) {
		err = run()
	}
	return err
}

// writeTokenFile replaces the file in one step, so that a reader finds a whole token.
func writeTokenFile(path, token string) error {
	if path == "" {
		return nil
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".admin-token-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	defer os.Remove(tmp.Name()) // nothing to remove after the rename
	_, err = tmp.WriteString(token + "\n")
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	return nil
}

const (
	selectAnyAdmin    = `SELECT 1 FROM admin_tokens WHERE NOT revoked LIMIT 1`
	deleteRevokedHash = `DELETE FROM admin_tokens WHERE token_hash = $1 AND revoked`
	replaceBootstrap  = `UPDATE admin_tokens SET token_hash = $1, role = 'owner', routing_key = NULL, expires_at = NULL
		WHERE label = 'bootstrap' AND NOT revoked`
)
