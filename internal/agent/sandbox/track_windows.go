package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

func newTracker() tracker { return &jobTracker{} }

// awaitExit returns at once: nothing depends on the thread that started the process.
func awaitExit(int) {}

// jobTracker holds the group in a job object, which every descendant belongs to. The system ends all of them when the last
// handle to it closes, so none outlives this process. The first process starts suspended, so that it cannot start
// another before it is in the job.
type jobTracker struct {
	mu  sync.Mutex
	job windows.Handle // 0 once closed
	err error          // why the process could not be put into the job; it was ended for that
}

func (t *jobTracker) prepare(cmd *exec.Cmd) error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("make job object: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		return errors.Join(fmt.Errorf("bound job object: %w", err), windows.CloseHandle(job))
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP
	t.job = job
	return nil
}

func (t *jobTracker) started(pid int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if pid == 0 {
		t.closeLocked()
		return
	}
	if t.err = t.admit(uint32(pid)); t.err != nil {
		t.closeLocked()
	}
}

// admit puts the suspended process into the job and lets it run. One that cannot be is ended: it has done nothing yet.
func (t *jobTracker) admit(pid uint32) error {
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE
	process, err := windows.OpenProcess(access, false, pid)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer windows.CloseHandle(process)
	err = windows.AssignProcessToJobObject(t.job, process)
	if err == nil {
		err = resume(pid)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("put process %d into its job object: %w", pid, err), windows.TerminateProcess(process, 1))
	}
	return nil
}

// resume lets the threads of a suspended process run; it has one.
func resume(pid uint32) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(snapshot)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return err
		}
		_, err = windows.ResumeThread(thread)
		return errors.Join(err, windows.CloseHandle(thread))
	}
	return err
}

// exited leaves the job as it is: others may be in it.
func (t *jobTracker) exited() {}

func (t *jobTracker) kill(bound time.Duration, spare int) error {
	if spare != 0 {
		return errors.New("members of a group cannot be told apart on this system")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.job == 0 {
		return t.err
	}
	if err := windows.TerminateJobObject(t.job, 1); err != nil {
		return fmt.Errorf("end job object: %w", err)
	}
	deadline := time.Now().Add(bound)
	for {
		left, err := t.activeLocked()
		if err != nil {
			return err
		}
		if left == 0 {
			t.closeLocked()
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes are still there after %v", left, bound)
		}
		time.Sleep(time.Millisecond)
	}
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION of winnt.h.
type accounting struct {
	totalUserTime, totalKernelTime, thisPeriodUserTime, thisPeriodKernelTime int64
	totalPageFaults, totalProcesses, activeProcesses, terminatedProcesses    uint32
}

const basicAccounting = 1 // JobObjectBasicAccountingInformation

func (t *jobTracker) activeLocked() (uint32, error) {
	var info accounting
	err := windows.QueryInformationJobObject(t.job, basicAccounting, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	if err != nil {
		return 0, fmt.Errorf("count processes of job object: %w", err)
	}
	return info.activeProcesses, nil
}

func (t *jobTracker) closeLocked() {
	if t.job != 0 {
		_ = windows.CloseHandle(t.job) // it ends what may be left
		t.job = 0
	}
}

// signalGroup can only end the first process: this system has no signal that asks a process politely.
func signalGroup(pid int, sig syscall.Signal) error {
	if sig != syscall.SIGTERM && sig != syscall.SIGKILL {
		return fmt.Errorf("signal %v is unknown on this system", sig)
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil // it has gone
	}
	defer p.Release()
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
