// Lets the search of the site run where it is opened as files. Browsers start no Worker from file://, so this one runs the
// worker's script in a hidden frame. The theme would load such a script from the network.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      this.receive = event => {
        if (event.source === inside)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      }
      window.addEventListener("message", this.receive)
      this.ready = new Promise(resolve => { window.addEventListener(`worker ${url}`, resolve, { once: true }) })
      const code = `
        const answer = parent.postMessage.bind(parent)
        window.postMessage = data => answer(data, "*")
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {
          const script = Object.assign(document.createElement("script"), { src: url, onload: resolve, onerror: reject })
          document.body.append(script)
        })), Promise.resolve())`
      inside.document.open()
      inside.document.write(`<body><script>${code}</` + `script><script src="${url}"></` + `script>
        <script>parent.dispatchEvent(new Event("worker ${url}"))</` + "script></body>")
      inside.document.close()
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      window.removeEventListener("message", this.receive)
      this.frame.remove()
    }
  }
