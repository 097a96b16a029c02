package logs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"kici/internal/server/logs/retention"
	"kici/internal/server/store"
)

// rows are the short logs of one folder of logs.
type rows struct {
	db     *store.DB
	folder string
}

// openRows finds out under which name the database has the short logs of a folder. An embedded database belongs to one
// data folder, so that they need none. In a shared one it must be a name that goes with the files, whatever its node is
// called later and wherever a backup is put back.
//
// Where logs are kept in segments none is begun as a row. Those from before are still read; where there are none, it is nil.
func openRows(ctx context.Context, db *store.DB, root *os.Root, segments bool) (r *rows, err error) {
	r = &rows{db: db}
	if db.Dialect == store.Postgres {
		if r.folder, err = folderID(root); err != nil {
			return nil, err
		}
	}
	if !segments {
		return r, nil
	}
	var any bool
	if err := db.Read().QueryRowContext(ctx, anyShort, r.folder).Scan(&any); err != nil || !any {
		return nil, err
	}
	return r, nil
}

// folderFile holds the id of a folder of logs.
const folderFile = "folder-id"

func folderID(root *os.Root) (string, error) {
	raw, err := root.ReadFile(folderFile)
	if id := strings.TrimSpace(string(raw)); id != "" || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	id := uuid.NewString()
	f, err := root.OpenFile(folderFile, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(id + "\n")
	return id, errors.Join(err, f.Sync(), f.Close()) // rows that nobody finds would be lost
}

// read gives a short log; ok is false when there is no row.
func (r *rows) read(ctx context.Context, log string) (text string, ok bool, err error) {
	run, name, ok := splitPath(log)
	if !ok {
		return "", false, nil
	}
	err = r.db.Read().QueryRowContext(ctx, selectShort, run, r.folder, name).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return text, err == nil, err
}

// begin writes a short log that is new. Error: errUnread when there is a row.
func (r *rows) begin(ctx context.Context, log string, data []byte) error {
	return r.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error { return r.beginTx(ctx, tx, log, data) })
}

// beginTx is begin in a transaction.
func (r *rows) beginTx(ctx context.Context, tx *store.Tx, log string, data []byte) error {
	run, name, _ := splitPath(log)
	return tx.DoOne(ctx, errUnread, insertShort+" DO NOTHING", run, r.folder, name, time.Now().UnixMilli(), string(data))
}

// put writes a short log as a whole.
func (r *rows) put(ctx context.Context, log string, data []byte) error {
	run, name, _ := splitPath(log)
	return r.exec(ctx, putShort, run, r.folder, name, time.Now().UnixMilli(), string(data))
}

// remove deletes the row of a log, if there is one.
func (r *rows) remove(ctx context.Context, log string) error {
	run, name, _ := splitPath(log)
	return r.exec(ctx, deleteShort, run, r.folder, name)
}

// removeRun deletes the rows of a run.
func (r *rows) removeRun(ctx context.Context, run string) error {
	return r.exec(ctx, deleteShortRun, run, r.folder)
}

func (r *rows) exec(ctx context.Context, statement string, args ...any) error {
	return r.db.Write(ctx, func(ctx context.Context, tx *store.Tx) error {
		return tx.Do(ctx, statement, args...)
	})
}

// measure adds up the short logs by their runs.
func (r *rows) measure(ctx context.Context, m *retention.Measure) error {
	list, err := r.db.Read().QueryContext(ctx, sumShort, r.folder)
	if err != nil {
		return err
	}
	defer list.Close()
	for list.Next() {
		var run string
		var bytes, last int64
		if err := list.Scan(&run, &bytes, &last); err != nil {
			return err
		}
		m.Add(run, bytes, time.UnixMilli(last))
	}
	return list.Err()
}

// ForgetRunTx deletes the short logs of a run that is forgotten, those of all nodes. Files go by their own sweep.
func (s *Store) ForgetRunTx(ctx context.Context, tx *store.Tx, runID string) error {
	if err := tx.Do(ctx, forgetShort, element(runID)); err != nil {
		return fmt.Errorf("forget short logs of run %s: %w", runID, err)
	}
	return nil
}

const (
	anyShort = `SELECT EXISTS (SELECT 1 FROM short_logs WHERE folder = $1)`

	selectShort = `SELECT data FROM short_logs WHERE run_id = $1 AND folder = $2 AND name = $3`

	insertShort = `INSERT INTO short_logs (run_id, folder, name, written_at, data) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (run_id, folder, name)`

	putShort = insertShort + ` DO UPDATE SET written_at = excluded.written_at, data = excluded.data`

	deleteShort = `DELETE FROM short_logs WHERE run_id = $1 AND folder = $2 AND name = $3`

	deleteShortRun = `DELETE FROM short_logs WHERE run_id = $1 AND folder = $2`

	forgetShort = `DELETE FROM short_logs WHERE run_id = $1`

	// sumShort needs no text of a log: engines know how long it is without reading it.
	sumShort = `SELECT run_id, sum(octet_length(data)), max(written_at) FROM short_logs WHERE folder = $1 GROUP BY run_id`
)
