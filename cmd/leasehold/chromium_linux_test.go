package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A chromium is a browser without a window, told what to do over a pair of pipes in
// the DevTools protocol: JSON with a zero byte at the end.
type chromium struct {
	t   *testing.T
	out io.Writer

	mu      sync.Mutex
	last    int
	answers map[int]chan devAnswer
	console []string // what a page logged as an error
	closed  error
}

type devAnswer struct {
	ID     int
	Result json.RawMessage
	Error  *struct{ Message string }

	Method    string
	Params    json.RawMessage
	SessionID string
}

// chromiumPath is where the browser is; "" if there is none.
func chromiumPath() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// startChromium starts a browser, or skips the test.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path := chromiumPath()
	if path == "" {
		t.Skip("there is no Chromium on this machine: apt-get install chromium")
	}
	toRead, toWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromRead, fromWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "lhc")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb", "--lang=en-GB",
		"--user-data-dir="+profile, "about:blank")
	cmd.Env = append(os.Environ(), "TZ=UTC", "HOME="+profile, "TMPDIR="+profile)
	cmd.ExtraFiles = []*os.File{toRead, fromWrite}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children end with it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toRead.Close()
	fromWrite.Close()
	b := &chromium{t: t, out: toWrite, answers: make(map[int]chan devAnswer)}
	read := make(chan struct{})
	go func() { // ends with the browser
		defer close(read)
		b.read(fromRead)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		toWrite.Close()
		fromRead.Close()
		<-read
		for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) { // its children may still be going
			err := os.RemoveAll(profile)
			if err == nil {
				return
			}
			if time.Since(begun) > patience {
				t.Error(err)
				return
			}
		}
	})
	return b
}

func (b *chromium) read(in io.Reader) {
	for r := bufio.NewReader(in); ; {
		line, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.closed = errors.New("the browser has gone")
			for _, answer := range b.answers {
				close(answer)
			}
			b.answers = nil
			b.mu.Unlock()
			return
		}
		var m devAnswer
		if json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &m) != nil {
			continue
		}
		b.mu.Lock()
		if answer, ok := b.answers[m.ID]; ok && m.ID != 0 {
			answer <- m
			delete(b.answers, m.ID)
		}
		switch m.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded":
			if m.Method[0] == 'R' || bytes.Contains(m.Params, []byte(`"level":"error"`)) {
				b.console = append(b.console, string(m.Params))
			}
		case "Runtime.consoleAPICalled":
			if bytes.Contains(m.Params, []byte(`"type":"error"`)) || bytes.Contains(m.Params, []byte(`"type":"warning"`)) {
				b.console = append(b.console, string(m.Params))
			}
		}
		b.mu.Unlock()
	}
}

// errorsSeen gives what pages have logged as errors, once.
func (b *chromium) errorsSeen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.console
	b.console = nil
	return seen
}

func (b *chromium) call(session, method string, params any, result any) error {
	answer := make(chan devAnswer, 1)
	b.mu.Lock()
	if b.closed != nil {
		b.mu.Unlock()
		return b.closed
	}
	b.last++
	id := b.last
	b.answers[id] = answer
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if session != "" {
		message["sessionId"] = session
	}
	line, err := json.Marshal(message)
	if err == nil {
		_, err = b.out.Write(append(line, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return errors.New("the browser has gone")
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s: the browser does not answer", method)
	}
}

// A tab is one page of a browser.
type tab struct {
	*chromium
	session string
}

// open opens a page.
func (b *chromium) open(url string) *tab {
	b.t.Helper()
	var made struct{ TargetID string }
	b.must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &made))
	var attached struct{ SessionID string }
	b.must(b.call("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached))
	p := &tab{b, attached.SessionID}
	for _, domain := range []string{"Runtime", "Log", "Page"} {
		p.do(domain+".enable", nil)
	}
	p.look(1280, 800, "light")
	p.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		window.longest = 0;
		new PerformanceObserver((list) => { for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({ type: "longtask", buffered: true });`})
	p.visit(url)
	return p
}

// visit leads the tab to another address. What is evaluated after it is evaluated
// there. A script that sets location cannot promise that: the browser answers what
// comes meanwhile with an error.
func (p *tab) visit(url string) {
	p.t.Helper()
	p.do("Page.navigate", map[string]any{"url": url})
}

func (b *chromium) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (p *tab) do(method string, params any) {
	p.t.Helper()
	p.must(p.call(p.session, method, params, nil))
}

// look says how wide the page is, and whether it is day.
func (p *tab) look(wide, tall int, scheme string) {
	p.t.Helper()
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": wide, "height": tall, "deviceScaleFactor": 1, "mobile": wide < 600})
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}})
}

// eval gives the value of an expression, which may be a promise.
func (p *tab) eval(expression string, value any) {
	p.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	p.must(p.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &got))
	if e := got.ExceptionDetails; e != nil {
		p.t.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if value != nil && len(got.Result.Value) > 0 {
		p.must(json.Unmarshal(got.Result.Value, value))
	}
}

// sees waits until an expression is true. It fails once waiting can no longer help.
func (p *tab) sees(what, expression string) {
	p.t.Helper()
	for begun := time.Now(); ; time.Sleep(30 * time.Millisecond) {
		var ok bool
		p.eval("(() => { try { return !!("+expression+"); } catch { return false; } })()", &ok)
		if ok {
			return
		}
		if time.Since(begun) > patience {
			var text string
			p.eval("document.body.innerText", &text)
			p.t.Fatalf("not seen: %s\n%s\nconsole: %s", what, text, strings.Join(p.errorsSeen(), "\n"))
		}
	}
}

// press presses a key, as a keyboard does.
func (p *tab) press(key string) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36, " ": 32}
	event := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": codes[key]}
	if key == "Enter" {
		event["text"] = "\r"
	}
	p.do("Input.dispatchKeyEvent", event)
	p.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": codes[key]})
}

// write writes a text where the keyboard is.
func (p *tab) write(text string) {
	p.t.Helper()
	p.do("Input.insertText", map[string]any{"text": text})
}

// picture takes a picture of what is seen.
func (p *tab) picture(file string) {
	p.t.Helper()
	var got struct{ Data string }
	p.must(p.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &got))
	data, err := base64.StdEncoding.DecodeString(got.Data)
	p.must(err)
	p.must(os.WriteFile(file, data, 0o644))
}
