// Elements, and how what is shown becomes what is to be shown without losing focus, open details or scroll.
//
//   h("p", { class: "note" }, "text", h("b", {}, "more")) -> element
//   patch(parent, children): the children that are there are made like the new ones, part by part
//
// Always true: text is set as text. Nothing here reads markup from a string.

const SVG = "http://www.w3.org/2000/svg";
const EVENTS = ["onclick", "onsubmit", "oninput", "onchange"];

// A component's element is not moved while what is to be shown is put together: a comment stands for it until then.
const standFor = element => Object.assign(document.createComment(""), { stands: element });

const nodes = children => children.flat(Infinity)
  .filter(child => child !== null && child !== undefined && child !== false)
  .map(child => child instanceof Node ? (child.isOwn ? standFor(child) : child) : document.createTextNode(String(child)));

const put = (element, children) => {
  element.append(...nodes(children));
  return element;
};

const fill = (element, properties, children) => {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (EVENTS.includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  return put(element, children);
};

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

// A component draws itself: its element stays as it is wherever it is put.
export const own = element => {
  element.isOwn = true;
  return element;
};

const isLike = (old, fresh) =>
  old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && !old.isOwn && !fresh.isOwn &&
  (old.nodeType !== Node.ELEMENT_NODE || old.getAttribute("data-key") === fresh.getAttribute("data-key"));

const become = (old, fresh) => {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // What a reader opened stays open.
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const event of EVENTS) old[event] = fresh[event];
  patch(old, [...fresh.childNodes]);
};

// Puts components where comments stand for them.
const settle = node => {
  for (const child of [...node.childNodes]) {
    if (child.stands) child.replaceWith(child.stands);
    else if (!child.isOwn) settle(child);
  }
};

export const patch = (parent, children) => {
  let at = parent.firstChild;
  for (const child of nodes(children)) {
    const component = child.stands;
    if (component) {
      if (at === component) at = at.nextSibling;
      else parent.insertBefore(component, at);
    } else if (at && isLike(at, child)) {
      become(at, child);
      at = at.nextSibling;
    } else {
      settle(child);
      parent.insertBefore(child, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
};
