package fleet

import (
	"context"
	"fmt"

	"kici/internal/server/store"
)

// RebootsAt tells whether the agent's host is about to reboot, or does so, at a time: until then its agent gets no jobs, and the
// end of its connection is expected.
func (a Agent) RebootsAt(now int64) bool { return a.RebootUntil > now }

// AwaitReboot notes that the host of an agent reboots and is back until a time, and reports whether it did: only when the
// connection that says so is still the agent's current one. A later call moves the time.
func AwaitReboot(ctx context.Context, tx *store.Tx, agentID, connectionID string, until int64) (noted bool, err error) {
	noted, err = store.Changed(tx.ExecContext(ctx, "UPDATE agents SET reboot_until = $3 WHERE agent_id = $1 AND connection_id = $2",
		agentID, connectionID, until))
	if err != nil {
		return false, fmt.Errorf("note the reboot of the host of agent %s: %w", agentID, err)
	}
	return noted, nil
}

// EndReboot notes that the host of an agent does not reboot any more: it came back, or nobody wants it now.
func EndReboot(ctx context.Context, tx *store.Tx, agentID string) error {
	err := tx.Do(ctx, "UPDATE agents SET reboot_until = NULL WHERE agent_id = $1 AND reboot_until IS NOT NULL", agentID)
	if err != nil {
		return fmt.Errorf("end the reboot of the host of agent %s: %w", agentID, err)
	}
	return nil
}

// OverdueReboots lists the agents whose hosts should have been back from their reboots until now.
func OverdueReboots(ctx context.Context, q store.Querier, now int64) ([]string, error) {
	ids, err := store.Texts(ctx, q, "SELECT agent_id FROM agents WHERE reboot_until <= $1 ORDER BY agent_id", now)
	if err != nil {
		return nil, fmt.Errorf("list overdue reboots: %w", err)
	}
	return ids, nil
}

// GiveUpReboot ends a reboot whose time is up, and reports whether it did: the host may have come back, or have asked for more
// time meanwhile.
func GiveUpReboot(ctx context.Context, tx *store.Tx, agentID string, now int64) (bool, error) {
	changed, err := store.Changed(tx.ExecContext(ctx, "UPDATE agents SET reboot_until = NULL WHERE agent_id = $1 AND reboot_until <= $2", agentID, now))
	if err != nil {
		return false, fmt.Errorf("give up the reboot of the host of agent %s: %w", agentID, err)
	}
	return changed, nil
}
