// Offers to load the explorer in place of its picture on the home page.
document.addEventListener("DOMContentLoaded", () => {
  const picture = document.querySelector("#draw");
  if (!picture) return;
  const figure = document.createElement("div");
  figure.className = "draw";
  picture.replaceWith(figure);
  const button = document.createElement("button");
  button.textContent = "▶ Draw a digit here (loads 35 MB, runs in your browser)";
  figure.append(picture, button);
  button.addEventListener("click", () => {
    const frame = document.createElement("iframe");
    frame.src = "draw.html";
    frame.title = "The explorer: draw a digit and watch a capsule network read it";
    const link = document.createElement("a");
    link.href = "draw.html";
    link.textContent = "Open it on a page of its own";
    figure.replaceChildren(frame, link);
  });
});
